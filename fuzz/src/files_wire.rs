//! What a process and the server of a table drive say to each other: what is understood is understood again when it is written.

use openftl_files::wire::{Answer, BODY_BYTES_MAX, HEAD_BYTES, Head, Request};

pub fn run(data: &[u8]) {
    let Some((head, body)) = data.split_first_chunk::<HEAD_BYTES>() else { return };
    if let Ok(head) = Head::parse(head) {
        assert!(head.bytes.get() as usize <= BODY_BYTES_MAX);
    }
    // The kind counts whatever the rest of the head is.
    let kind = u16::from_be_bytes([head[6], head[7]]);
    if let Ok(request) = Request::parse(kind, body) {
        let mut message = Vec::new();
        request.write(7, &mut message);
        let (kind, body) = taken_apart(&message);
        assert_eq!(Request::parse(kind, body).as_ref(), Ok(&request));
    }
    if let Ok(answer) = Answer::parse(kind, body) {
        let mut message = Vec::new();
        answer.write(7, &mut message);
        let (kind, body) = taken_apart(&message);
        // A long text of an error is cut once.
        let cut = Answer::parse(kind, body).expect("what is written is understood");
        let mut again = Vec::new();
        cut.write(7, &mut again);
        assert_eq!(message, again);
    }
}

fn taken_apart(message: &[u8]) -> (u16, &[u8]) {
    let (head, body) = message.split_first_chunk().expect("a message has a head");
    let head = Head::parse(head).expect("what is written is understood");
    assert_eq!((head.number.get(), head.bytes.get() as usize), (7, body.len()));
    (head.kind.get(), body)
}
