//! Redis clients, without sockets: what they send and get, cut into any pieces, beside others that send garbage.

mod clients;
mod front;
