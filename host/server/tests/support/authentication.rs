//! NVMe hosts that show who they are.

use std::net::TcpStream;

use getrandom::SysRng;
use getrandom::rand_core::UnwrapErr;
use openftl_nvme_auth::messages::RECEIVE_BYTES_MAX;
use openftl_nvme_auth::{Explanation, Host, Next, Nonces};
use openftl_nvme_tcp::client::Payload;
use openftl_nvme_tcp::{Client, ClientError, fabrics};

/// Sends a message.
pub fn send(queue: &mut Client<TcpStream>, message: Vec<u8>) -> Result<(), ClientError> {
    let entry = fabrics::authentication_send(message.len() as u32);
    queue.call("Authentication Send", &entry, Payload::ToController(message)).map(drop)
}

/// What the controller answers.
pub fn receive(queue: &mut Client<TcpStream>) -> Result<Vec<u8>, ClientError> {
    let room = Payload::ToHost(vec![0; RECEIVE_BYTES_MAX]);
    queue.submit(0, &fabrics::authentication_receive(RECEIVE_BYTES_MAX as u32), room);
    let ended = queue.wait()?;
    assert_eq!(ended.status(), 0, "there is an answer, whatever it says");
    Ok(ended.data[..ended.received].to_vec())
}

/// How an authentication went for the host: in, or why not.
pub fn authenticate(queue: &mut Client<TcpStream>, host: &mut Host, transaction: u16) -> Result<(), Explanation> {
    const HEARD: &str = "a message is heard, whatever it says";
    let mut nonces = Nonces::new(UnwrapErr(SysRng));
    let mut next = host.begin(transaction);
    loop {
        send(queue, next).expect(HEARD);
        let (last, result) = match host.receive(&receive(queue).expect("there is an answer"), &mut nonces) {
            Next::Exchange(message) => {
                next = message;
                continue;
            }
            Next::Authenticated(last) => (last, Ok(())),
            Next::Close { refusal, last } => (last, Err(refusal.explanation)),
        };
        if let Some(last) = last {
            send(queue, last).expect(HEARD);
        }
        return result;
    }
}
