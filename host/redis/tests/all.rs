//! Redis clients, without sockets.
