//! The client on a stream in memory.

#[expect(dead_code, reason = "the pair uses more of it")]
mod support;

use std::io::{self, Read, Write};

use openftl_nvme_tcp::client::{Client, ClientError, Payload};
use openftl_nvme_tcp::fabrics::{CONTROLLER_ID_ANY, Identity, PropertyName, QueueParameters};
use openftl_nvme_tcp::nvm::{self, Blocks};
use openftl_nvme_tcp::{FatalError, InitiatorConfig, TargetConfig, Termination};
use support::controller::Controller;
use support::{Chance, Stream};

const BLOCK: usize = 512;

/// A stream at whose other end a controller listens. Reading lets it work, and brings what it says in pieces.
struct Line {
    controller: Controller,
    said: Stream,
    chance: Chance,
    /// Bytes to put in front of what the controller says next.
    noise: Vec<u8>,
    /// The controller listens only when everything that it said is read.
    says_first: bool,
}

impl Line {
    fn new(seed: u64, flow_control: bool) -> Line {
        let mut controller = Controller::new(TargetConfig::default(), 32, flow_control, 4 << 20);
        controller.block_bytes = BLOCK;
        Line { controller, said: Stream::default(), chance: Chance::new(seed), noise: Vec::new(), says_first: false }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.says_first && !self.said.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let taken = 1 + self.chance.below(bytes.len());
        self.controller.hear(&bytes[..taken], &mut self.chance, &mut self.said);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Line {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if !self.noise.is_empty() {
            let read = room.len().min(self.noise.len());
            room[..read].copy_from_slice(&self.noise[..read]);
            self.noise.drain(..read);
            return Ok(read);
        }
        // Ready after some work, or when there is nothing left to do.
        while self.said.is_empty() || self.chance.below(3) == 0 {
            if !self.controller.work(&mut self.chance, &mut self.said) {
                break;
            }
        }
        let piece = self.said.take(1 + self.chance.below(room.len()));
        room[..piece.len()].copy_from_slice(&piece);
        Ok(piece.len())
    }
}

fn identity() -> Identity {
    Identity { host_id: [1; 16], host_nqn: "nqn.2014-08.org.example:host".into(), subsystem_nqn: "nqn.x:drive".into() }
}

fn connected(seed: u64, queue_id: u16, flow_control: bool) -> Client<Line> {
    connected_over(Line::new(seed, flow_control), seed, queue_id, flow_control)
}

fn connected_over(line: Line, seed: u64, queue_id: u16, flow_control: bool) -> Client<Line> {
    let digests = seed.is_multiple_of(2);
    let config = InitiatorConfig { header_digest: digests, data_digest: digests, ..InitiatorConfig::default() };
    let mut client = Client::open(line, config).unwrap();
    let queue = QueueParameters { queue_id, entries: 32, flow_control, keep_alive_ms: 0 };
    let connected = client.connect(queue, &identity(), CONTROLLER_ID_ANY).unwrap();
    assert_eq!((connected.controller_id, connected.authentication_required), (5, false));
    client
}

#[test]
fn an_admin_queue_starts_its_controller_and_asks_what_it_is() {
    let mut client = connected(0, 0, true);
    let mut waited = 0;
    client
        .start_controller(|| {
            waited += 1;
            true
        })
        .unwrap();
    assert_eq!(waited, 1);
    assert_eq!(client.property(PropertyName::Cc).unwrap() & 0xffff_ffff & !(1 << 31), 0x0046_0001);
    assert_eq!(client.identify(1, 0).unwrap(), [1; 4096]);
    assert_eq!(client.set_number_of_queues(9).unwrap(), 2);
    client.keep_alive().unwrap();
}

#[test]
fn a_controller_that_does_not_start_is_given_up_when_the_caller_says_so() {
    let mut client = connected(1, 0, true);
    let error = client.start_controller(|| false).unwrap_err();
    assert_eq!(error.to_string(), "the controller does not become ready (CSTS 0x0)");
}

#[test]
fn blocks_are_read_as_they_were_written() {
    for seed in 0..6 {
        let mut client = connected(seed, 1, seed < 3);
        let mut chance = Chance::new(seed);
        for count in [1, 8, 17, 200, 2048] {
            let blocks = Blocks { namespace: 1, first: 5, count };
            let data = chance.bytes(count as usize * BLOCK);
            assert!(client.write(blocks, data.clone()).unwrap() == data);
            assert!(client.read(blocks, vec![0; data.len()]).unwrap() == data, "seed {seed}, {count} blocks");
        }
        client.flush(1).unwrap();
        client.disconnect().unwrap();
    }
}

#[test]
fn many_commands_are_under_way_at_once_and_each_ends_with_its_own_data() {
    let mut client = connected(8, 1, false);
    let place = |tag: u64| Blocks { namespace: 1, first: tag * 64, count: 1 + (tag as u32 * 7) % 64 };
    let data = |tag: u64| vec![tag as u8 + 1; place(tag).count as usize * BLOCK];
    for writes in [true, false] {
        let (mut submitted, mut ended) = (0, 0);
        while ended < 100 {
            while submitted < 100 && client.has_room() {
                let blocks = place(submitted);
                if writes {
                    client.submit(submitted, &nvm::write(blocks), Payload::ToController(data(submitted)));
                } else {
                    let room = vec![0; data(submitted).len()];
                    client.submit(submitted, &nvm::read(blocks), Payload::ToHost(room));
                }
                submitted += 1;
            }
            assert!(client.commands_under_way() == 31 || submitted == 100);
            let one = client.wait().unwrap();
            assert!(one.status() == 0 && one.intact && one.data == data(one.tag), "{}", one.tag);
            ended += 1;
        }
    }
}

#[test]
fn a_controller_that_listens_only_when_it_is_heard_out_gets_all_of_its_data() {
    for seed in 0..6 {
        let line = Line { says_first: true, ..Line::new(seed, false) };
        let mut client = connected_over(line, seed, 1, false);
        let place = |tag: u64| Blocks { namespace: 1, first: tag % 20 * 256, count: 256 };
        let written = |tag: u64| vec![tag as u8; 256 * BLOCK];
        // The first of each is written before any is read; from then on both at once.
        for tag in 0..20 {
            client.write(place(tag), written(tag)).unwrap();
        }
        let (mut submitted, mut ended) = (20, 20);
        while ended < 120 {
            while submitted < 120 && client.has_room() {
                match submitted % 2 {
                    0 => client.submit(
                        submitted,
                        &nvm::write(place(submitted)),
                        Payload::ToController(written(submitted % 20)),
                    ),
                    _ => client.submit(submitted, &nvm::read(place(submitted)), Payload::ToHost(vec![0; 256 * BLOCK])),
                }
                submitted += 1;
            }
            let one = client.wait().unwrap();
            assert!(one.status() == 0 && one.intact && one.data == written(one.tag % 20), "seed {seed}, {}", one.tag);
            ended += 1;
        }
    }
}

/// A client whose controller has this to say instead of an answer.
fn misled(prepare: impl FnOnce(&mut Line)) -> ClientError {
    let mut line = Line::new(3, true);
    prepare(&mut line);
    let mut client = match Client::open(line, InitiatorConfig::default()) {
        Ok(client) => client,
        Err(error) => return error,
    };
    let queue = QueueParameters { queue_id: 1, entries: 32, flow_control: true, keep_alive_ms: 0 };
    client.connect(queue, &identity(), 5).unwrap();
    client.read(Blocks { namespace: 1, first: 0, count: 4 }, vec![0; 4 * BLOCK]).unwrap_err()
}

#[test]
fn what_goes_wrong_is_told_with_the_command_and_the_reason() {
    let error = misled(|line| line.controller.status = 0x0281);
    assert_eq!(error.to_string(), "Read failed with status code type 0x2, status code 0x81");
    let error = misled(|line| line.noise = b"HTTP/1.1 400 Bad Request\r\n".to_vec());
    assert!(matches!(error, ClientError::Terminated(Termination::Sent(FatalError { information: 0, .. }))), "{error}");
    assert_eq!(error.to_string(), "the PDU header field at byte 0 is invalid");
    // A controller that leaves without a word.
    let error = misled(|line| line.controller.termination = Some(Termination::Broken));
    assert!(matches!(error, ClientError::Closed), "{error}");
    let mut client = connected(4, 1, true);
    let nobody = Identity { subsystem_nqn: String::new(), ..identity() };
    let queue = QueueParameters { queue_id: 1, entries: 32, flow_control: true, keep_alive_ms: 0 };
    let error = client.connect(queue, &nobody, 5).unwrap_err();
    assert_eq!(error.to_string(), "the subsystem NQN `` has 0 bytes; an NQN has 1 to 223");
}
