//! The control socket of a drive: the same requests however their lines arrive, and each is written as it was understood.

use openftl_control::protocol::{Refusal, Request, parse_request, parse_response, request_line, response_line};
use openftl_control::session::Session;

pub fn run(data: &[u8]) {
    let requests = said(data, data.len());
    for piece in [1, 7] {
        assert_eq!(said(data, piece), requests, "in pieces of {piece} bytes");
    }
    for request in requests.into_iter().flatten() {
        assert_eq!(parse_request(&request_line(&request)), Ok(request));
    }
    // Facts may be numbers that JSON does not write back to the last bit.
    if let Ok(response) = parse_response(data) {
        assert!(parse_response(&response_line(response)).is_ok(), "what was understood is written");
    }
}

/// All that a client asks for whose bytes arrive in pieces of this length.
fn said(mut bytes: &[u8], piece: usize) -> Vec<Result<Request, Refusal>> {
    let (mut session, mut said) = (Session::default(), Vec::new());
    while !bytes.is_empty() && !session.is_over() {
        let (received, rest) = bytes.split_at(piece.min(session.room()).min(bytes.len()));
        session.receive(received);
        bytes = rest;
        while session.has_request() {
            said.extend(session.take_request());
        }
    }
    said
}
