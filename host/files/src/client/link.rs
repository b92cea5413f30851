//! A link carries the requests of one thread at a time to the server, and their answers back.

use crate::stream::{Inbox, ReceiveError, Stream};
use crate::wire::{Answer, Head, Request, WireError};
use std::io;

/// A connection. It is used by one thread at a time.
pub(super) struct Link {
    stream: Stream,
    inbox: Inbox,
    number: u64,
    output: Vec<u8>,
}

impl Link {
    pub(super) fn new(stream: Stream) -> Link {
        Link { inbox: Inbox::new(stream.clone()), stream, number: 0, output: Vec::new() }
    }

    pub(super) fn send(&mut self, request: &Request<'_>) -> Result<(), ReceiveError> {
        self.number += 1;
        self.output.clear();
        request.write(self.number, &mut self.output);
        Ok(self.stream.send(&self.output)?)
    }

    /// Asks, and waits for the answer.
    pub(super) fn ask(&mut self, request: &Request<'_>) -> Result<Answer<'_>, ReceiveError> {
        let sent = self.send(request);
        let number = self.number;
        // A server that ends a connection has said why before.
        let (head, body) = match (self.inbox.receive(), sent) {
            (Ok(message), _) => message,
            (Err(_), Err(error)) | (Err(error), Ok(())) => return Err(error),
        };
        let Head { kind, number: found, .. } = head;
        let answer = Answer::parse(kind.get(), body)?;
        match answer {
            // Said to a connection, and not to a request.
            Answer::Error(error) if found.get() == 0 => Err(io::Error::other(error.text().to_owned()).into()),
            _ if found.get() != number => {
                let reason = "the answer is that of another request";
                Err(WireError::Body { kind: kind.get(), reason }.into())
            }
            answer => Ok(answer),
        }
    }
}
