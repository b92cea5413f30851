//! Every rule that the other side can break, and what it is told: Fatal Error Status, Fatal Error Information, and the
//! header that was wrong.

use openftl_core::checksum::crc32c;
use openftl_nvme_tcp::initiator::{self, CommandId, Transfer};
use openftl_nvme_tcp::pdu::{
    C2hData, CapsuleCmd, CapsuleResp, CommonHeader, Framing, H2cData, IcReq, IcResp, Kind, R2t, append, digest_bit,
    flag,
};
use openftl_nvme_tcp::sgl::{Completion, Data, IN_CAPSULE, SglDescriptor, SglError, Submission, TRANSPORT};
use openftl_nvme_tcp::target::{self, Slot};
use openftl_nvme_tcp::{
    FatalError, FatalErrorStatus, Initiator, InitiatorConfig, SUBMISSION_BYTES, Target, TargetConfig, Termination,
};
use zerocopy::{FromZeros, Immutable, IntoBytes};

const PLAIN: Framing = Framing { header_digest: false, data_digest: false, alignment: 4 };
const DIGESTS: Framing = Framing { header_digest: true, data_digest: true, alignment: 4 };

const INVALID: FatalErrorStatus = FatalErrorStatus::InvalidHeaderField;
const SEQUENCE: FatalErrorStatus = FatalErrorStatus::SequenceError;

fn pdu(header: &(impl IntoBytes + Immutable), data: &[u8], framing: Framing) -> Vec<u8> {
    let mut out = Vec::new();
    append(header, data.len() as u32, framing, &mut out);
    out.extend_from_slice(data);
    if framing.data_digest && !data.is_empty() {
        out.extend_from_slice(&crc32c(data).to_le_bytes());
    }
    out
}

/// A PDU with some of its bytes changed.
fn with(mut pdu: Vec<u8>, changes: &[(usize, u8)]) -> Vec<u8> {
    changes.iter().for_each(|(at, byte)| pdu[*at] = *byte);
    pdu
}

fn ic_req(digests: bool) -> Vec<u8> {
    let mut request = IcReq::new_zeroed();
    request.common = CommonHeader::new(Kind::IcReq, 0);
    request.digests = if digests { digest_bit::HEADER | digest_bit::DATA } else { 0 };
    request.r2ts_max = 1.into();
    pdu(&request, &[], PLAIN)
}

fn entry(opcode: u8, command_id: u16, identifier: u8, bytes: u32) -> [u8; SUBMISSION_BYTES] {
    let mut submission = Submission::new_zeroed();
    submission.opcode = opcode;
    submission.command_id = command_id.into();
    submission.sgl = SglDescriptor { address: 0.into(), bytes: bytes.into(), reserved: [0; 3], identifier };
    zerocopy::transmute!(submission)
}

fn capsule(entry: [u8; SUBMISSION_BYTES], data: &[u8], framing: Framing) -> Vec<u8> {
    pdu(&CapsuleCmd { common: CommonHeader::new(Kind::CapsuleCmd, 0), entry }, data, framing)
}

fn write_on_request(command_id: u16, bytes: u32) -> Vec<u8> {
    capsule(entry(1, command_id, TRANSPORT, bytes), &[], PLAIN)
}

fn h2c_data(command_id: u16, tag: u16, offset: u32, bytes: usize, flags: u8) -> Vec<u8> {
    let header = H2cData {
        common: CommonHeader::new(Kind::H2cData, flags),
        command_id: command_id.into(),
        transfer_tag: tag.into(),
        offset: offset.into(),
        bytes: (bytes as u32).into(),
        reserved: [0; 4],
    };
    pdu(&header, &vec![3; bytes], PLAIN)
}

/// A controller with a queue of four, which asks for all data of every write and completes nothing.
struct Controller {
    target: Target,
    input: Vec<u8>,
    output: Vec<u8>,
    commands: Vec<(Slot, Result<Data, SglError>)>,
    complete: Vec<(Slot, bool)>,
    termination: Option<Termination>,
}

impl Controller {
    fn new() -> Controller {
        let config = TargetConfig { h2c_data_bytes_max: 4096, ..TargetConfig::default() };
        let (input, output, commands, complete) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut target = Target::new(config);
        target.open_queue(4, true);
        Controller { target, input, output, commands, complete, termination: None }
    }

    fn hear(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        loop {
            let (consumed, event) = self.target.next(&self.input, &mut self.output);
            self.input.drain(..consumed);
            match event {
                target::Event::Starved => break,
                target::Event::Step => {}
                target::Event::Command { slot, data, .. } => {
                    self.commands.push((slot, data));
                    if let Ok(Data::OnRequest(bytes)) = data {
                        self.target.request(slot, bytes, &mut self.output);
                    }
                }
                target::Event::Payload { bytes, .. } => {
                    let there = self.input.len().min(bytes as usize);
                    if there == 0 {
                        break;
                    }
                    let piece: Vec<u8> = self.input.drain(..there).collect();
                    self.target.took(&piece);
                }
                target::Event::PayloadComplete { slot, intact } => self.complete.push((slot, intact)),
                target::Event::Terminated(termination) => {
                    self.termination = Some(termination);
                    break;
                }
            }
        }
    }
}

/// `broken`, after everything before it went well, is answered with a termination request that says so. The header that
/// comes back is as long as said.
fn check(before: &[Vec<u8>], broken: Vec<u8>, status: FatalErrorStatus, information: u32, header_bytes: usize) {
    let mut controller = Controller::new();
    before.iter().for_each(|pdu| controller.hear(pdu));
    assert_eq!(controller.termination, None, "the part before was to go well");
    let said = controller.output.len();
    broken.chunks(1).for_each(|byte| controller.hear(byte));
    let error = FatalError { status, information };
    assert_eq!(controller.termination, Some(Termination::Sent(error)));
    let mut wanted = vec![3, 0, 24, 0, 24 + header_bytes as u8, 0, 0, 0, status.code() as u8, 0];
    wanted.extend_from_slice(&information.to_le_bytes());
    wanted.extend_from_slice(&[0; 10]);
    wanted.extend_from_slice(&broken[..header_bytes]);
    assert_eq!(controller.output[said..], wanted, "{error}");
    // Nothing follows, and nothing more is said.
    controller.hear(&ic_req(false));
    assert_eq!(controller.output.len(), said + wanted.len());
    assert!(controller.target.is_terminated());
}

#[test]
fn a_connection_begins_with_one_icreq() {
    check(&[], write_on_request(1, 512), SEQUENCE, 0, 8);
    check(&[], h2c_data(1, 0, 0, 512, flag::LAST), SEQUENCE, 0, 8);
    check(&[ic_req(false)], ic_req(false), SEQUENCE, 0, 8);
    check(&[], b"GET / HTTP/1.1\r\n".to_vec(), INVALID, 0, 8);
}

#[test]
fn an_icreq_with_a_wrong_field_is_told_which() {
    check(&[], with(ic_req(false), &[(2, 24)]), INVALID, 2, 8);
    check(&[], with(ic_req(false), &[(4, 129)]), INVALID, 4, 8);
    check(&[], with(ic_req(false), &[(8, 1)]), FatalErrorStatus::UnsupportedParameter, 8, 128);
    check(&[], with(ic_req(false), &[(9, 1)]), FatalErrorStatus::UnsupportedParameter, 8, 128);
    check(&[], with(ic_req(false), &[(10, 32)]), INVALID, 10, 128);
}

#[test]
fn types_that_are_unknown_or_not_for_a_controller_are_refused() {
    for kind in [0x01, 0x03, 0x05, 0x07, 0x08, 0x09, 0x0a, 0xff] {
        check(&[ic_req(false)], with(write_on_request(1, 512), &[(0, kind)]), INVALID, 0, 8);
    }
}

#[test]
fn the_first_wrong_field_of_the_common_header_is_told() {
    let opened = [ic_req(false)];
    let data = || capsule(entry(1, 1, IN_CAPSULE, 512), &[1; 512], PLAIN);
    // A digest that was not agreed, or the other way round.
    check(&opened, with(data(), &[(1, flag::HEADER_DIGEST)]), INVALID, 1, 8);
    check(&opened, with(data(), &[(1, flag::DATA_DIGEST)]), INVALID, 1, 8);
    check(&[ic_req(true)], data(), INVALID, 1, 8);
    let without_data_digest = Framing { data_digest: false, ..DIGESTS };
    check(&[ic_req(true)], capsule(entry(1, 1, IN_CAPSULE, 9), &[1; 9], without_data_digest), INVALID, 1, 8);
    check(&opened, with(data(), &[(2, 71)]), INVALID, 2, 8);
    check(&opened, with(data(), &[(2, 73), (3, 0)]), INVALID, 2, 8);
    check(&opened, with(data(), &[(3, 0)]), INVALID, 3, 8);
    check(&opened, with(data(), &[(3, 71)]), INVALID, 3, 8);
    check(&opened, with(data(), &[(3, 74)]), INVALID, 3, 8);
    check(&opened, with(data(), &[(4, 71), (5, 0)]), INVALID, 4, 8);
    check(&opened, with(data(), &[(4, 0), (5, 0)]), INVALID, 4, 8);
    // Data that begin behind the end.
    check(&opened, with(data(), &[(3, 76), (4, 76), (5, 0)]), INVALID, 4, 8);
    // An H2CData without data.
    check(&opened, with(h2c_data(1, 0, 0, 512, flag::LAST), &[(4, 24), (5, 0)]), INVALID, 4, 8);
    // More than 8192 bytes in a capsule.
    let entry = entry(1, 1, IN_CAPSULE, 8193);
    check(&opened, capsule(entry, &[0; 8193], PLAIN)[..72].to_vec(), INVALID, 4, 72);
}

#[test]
fn a_wrong_header_digest_is_told_as_it_came() {
    let capsule = capsule(entry(0, 1, TRANSPORT, 0), &[], DIGESTS);
    let digest = u32::from_le_bytes([capsule[72], capsule[73], capsule[74], capsule[75]]);
    let broken = with(capsule, &[(40, 0x77)]);
    check(&[ic_req(true)], broken, FatalErrorStatus::HeaderDigestError, digest, 72);
}

#[test]
fn data_that_nobody_asked_for_are_told_by_command_or_tag() {
    let before = [ic_req(false), write_on_request(7, 8000)];
    check(&before, h2c_data(8, 0, 0, 512, 0), INVALID, 8, 24);
    check(&before, h2c_data(8, 9, 0, 512, 0), INVALID, 8, 24);
    check(&before, h2c_data(7, 1, 0, 512, 0), INVALID, 10, 24);
    check(&before, h2c_data(7, 0xffff, 0, 512, 0), INVALID, 10, 24);
    let whole =
        [before[0].clone(), before[1].clone(), h2c_data(7, 0, 0, 4096, 0), h2c_data(7, 0, 4096, 3904, flag::LAST)];
    check(&whole, h2c_data(7, 0, 0, 512, 0), INVALID, 8, 24);
    // Of a command that has no data, or other ones.
    let read = capsule(entry(2, 7, TRANSPORT, 512), &[], PLAIN);
    check(&[ic_req(false), read], h2c_data(7, 0, 0, 512, flag::LAST), INVALID, 8, 24);
}

#[test]
fn data_of_the_wrong_length_or_place_are_told_apart() {
    let before = [ic_req(false), write_on_request(7, 8000)];
    check(&before, with(h2c_data(7, 0, 0, 512, 0), &[(16, 1)]), INVALID, 16, 24);
    check(&before, h2c_data(7, 0, 0, 4100, 0)[..24].to_vec(), FatalErrorStatus::DataLimitExceeded, 0, 24);
    let out_of_range = FatalErrorStatus::DataOutOfRange;
    check(&before, h2c_data(7, 0, 8000, 512, 0)[..24].to_vec(), out_of_range, 0, 24);
    check(&before, h2c_data(7, 0, 7999, 2, flag::LAST)[..24].to_vec(), out_of_range, 0, 24);
    check(&before, h2c_data(7, 0, u32::MAX, 512, 0)[..24].to_vec(), out_of_range, 0, 24);
    check(&before, h2c_data(7, 0, 4, 512, 0)[..24].to_vec(), SEQUENCE, 0, 24);
    let begun = [before[0].clone(), before[1].clone(), h2c_data(7, 0, 0, 4096, 0)];
    check(&begun, h2c_data(7, 0, 0, 4096, 0)[..24].to_vec(), SEQUENCE, 0, 24);
    check(&begun, h2c_data(7, 0, 4096, 4000, flag::LAST)[..24].to_vec(), out_of_range, 0, 24);
    // LAST_PDU too early, and not at the end.
    check(&before, h2c_data(7, 0, 0, 512, flag::LAST)[..24].to_vec(), SEQUENCE, 0, 24);
    check(&begun, h2c_data(7, 0, 4096, 3904, 0)[..24].to_vec(), SEQUENCE, 0, 24);
}

#[test]
fn a_host_has_no_more_commands_than_its_queue_has_entries() {
    let mut before = vec![ic_req(false)];
    before.extend((0..4).map(|id| capsule(entry(0, id, TRANSPORT, 0), &[], PLAIN)));
    check(&before, capsule(entry(0, 9, TRANSPORT, 0), &[], PLAIN), SEQUENCE, 0, 72);
}

#[test]
fn before_its_connect_a_host_has_one_command() {
    let mut target = Target::new(TargetConfig::default());
    let mut out = Vec::new();
    let mut input = ic_req(false);
    input.extend(capsule(entry(0x7f, 1, TRANSPORT, 0), &[], PLAIN));
    input.extend(capsule(entry(0x7f, 2, TRANSPORT, 0), &[], PLAIN));
    let mut events = Vec::new();
    let mut from = 0;
    while events.len() < 3 {
        let (consumed, event) = target.next(&input[from..], &mut out);
        from += consumed;
        events.push(event);
    }
    assert!(matches!(events[1], target::Event::Command { .. }), "{events:?}");
    assert_eq!(events[2], target::Event::Terminated(Termination::Sent(FatalError::of(SEQUENCE))));
}

#[test]
fn a_termination_request_is_taken_and_not_answered() {
    let check = |request: Vec<u8>, wanted| {
        for before in [vec![], vec![ic_req(false)]] {
            let mut controller = Controller::new();
            before.iter().for_each(|pdu| controller.hear(pdu));
            let said = controller.output.len();
            controller.hear(&request);
            assert_eq!(controller.termination, Some(wanted));
            assert_eq!(controller.output.len(), said);
        }
    };
    let mut request = vec![2, 0, 24, 0, 24, 0, 0, 0, 4, 0, 0x44, 0x33, 0x22, 0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    check(request.clone(), Termination::Received { status: 4, information: 0x1122_3344 });
    request[4] = 152;
    check(request.clone(), Termination::Received { status: 4, information: 0x1122_3344 });
    // Wrong lengths end the connection without a word.
    request[4] = 153;
    check(request.clone(), Termination::Broken);
    request[4] = 23;
    check(request, Termination::Broken);
}

#[test]
fn a_wrong_data_digest_is_no_fatal_error() {
    let mut controller = Controller::new();
    controller.hear(&ic_req(true));
    let good = capsule(entry(1, 1, IN_CAPSULE, 512), &[1; 512], DIGESTS);
    let last = good.len() - 1;
    let broken = with(good.clone(), &[(last, good[last] ^ 1)]);
    controller.hear(&broken);
    controller.hear(&good);
    assert_eq!(controller.termination, None);
    let intact: Vec<bool> = controller.complete.iter().map(|(_, intact)| *intact).collect();
    assert_eq!(intact, [false, true]);
}

#[test]
fn a_capsule_without_data_needs_no_flag_of_their_digest() {
    for flags in [flag::HEADER_DIGEST, flag::HEADER_DIGEST | flag::DATA_DIGEST] {
        let mut controller = Controller::new();
        controller.hear(&ic_req(true));
        let mut header = with(capsule(entry(0, 1, TRANSPORT, 0), &[], DIGESTS), &[(1, flags)]);
        let digest = crc32c(&header[..72]).to_le_bytes();
        header[72..].copy_from_slice(&digest);
        controller.hear(&header);
        assert_eq!((controller.termination, controller.commands.len()), (None, 1));
    }
}

#[test]
fn a_descriptor_that_does_not_fit_costs_its_command_alone() {
    let mut controller = Controller::new();
    controller.hear(&ic_req(false));
    controller.hear(&capsule(entry(1, 1, IN_CAPSULE, 511), &[1; 512], PLAIN));
    controller.hear(&capsule(entry(2, 2, IN_CAPSULE, 512), &[1; 512], PLAIN));
    controller.hear(&capsule(entry(1, 3, IN_CAPSULE, 512), &[1; 512], PLAIN));
    assert_eq!(controller.termination, None);
    let data: Vec<_> = controller.commands.iter().map(|(_, data)| *data).collect();
    assert_eq!(data, [Err(SglError::Length), Err(SglError::Type), Ok(Data::InCapsule(512))]);
    assert_eq!(controller.complete, [(controller.commands[2].0, true)], "the data of refused commands are skipped");
}

#[test]
fn a_command_may_be_completed_without_the_data_in_its_capsule() {
    for taken in [0, 100] {
        let mut controller = Controller::new();
        controller.hear(&ic_req(true));
        let written = capsule(entry(1, 1, IN_CAPSULE, 512), &[1; 512], DIGESTS);
        let (consumed, event) = controller.target.next(&written, &mut controller.output);
        let target::Event::Command { slot, .. } = event else { panic!("{event:?}") };
        controller.target.took(&written[consumed..][..taken]);
        let mut completion = Completion::new_zeroed();
        completion.command_id = 1.into();
        controller.target.complete(slot, &zerocopy::transmute!(completion), &mut controller.output);
        controller.hear(&written[consumed + taken..]);
        controller.hear(&written);
        assert_eq!((controller.termination, controller.target.commands_under_way()), (None, 1));
        assert_eq!(controller.complete, [(slot, true)], "of the second command, in the same slot");
    }
}

/// The tags, offsets and lengths of the R2Ts among what was said.
fn r2ts(mut output: &[u8]) -> Vec<(u16, u32, u32)> {
    let mut r2ts = Vec::new();
    while let Some(length) = output.get(4) {
        if output[0] == Kind::R2t as u8 {
            let header: &R2t = zerocopy::FromBytes::ref_from_bytes(&output[..24]).unwrap();
            r2ts.push((header.transfer_tag.get(), header.offset.get(), header.bytes.get()));
        }
        output = &output[usize::from(*length)..];
    }
    r2ts
}

#[test]
fn a_host_is_asked_by_no_more_r2ts_than_it_takes() {
    let mut controller = Controller::new();
    // MAXR2T is 1, 0-based: two at once.
    controller.hear(&ic_req(false));
    let mut out = Vec::new();
    let (consumed, event) = controller.target.next(&write_on_request(7, 8000), &mut out);
    let target::Event::Command { slot, .. } = event else { panic!("{event:?}") };
    assert_eq!(consumed, 72);
    for _ in 0..4 {
        controller.target.request(slot, 1000, &mut out);
    }
    assert_eq!(r2ts(&out), [(0, 0, 1000), (1, 1000, 1000)]);
    assert!(controller.target.is_owed());
    // The second is answered first; what waits is asked for with one R2T then.
    controller.output.clear();
    controller.hear(&h2c_data(7, 1, 1000, 1000, flag::LAST));
    assert_eq!(r2ts(&controller.output), [(1, 2000, 2000)]);
    controller.hear(&h2c_data(7, 0, 0, 1000, flag::LAST));
    assert_eq!(controller.complete, []);
    controller.hear(&h2c_data(7, 1, 2000, 2000, flag::LAST));
    assert_eq!(controller.complete, [(slot, true)]);
    assert!(!controller.target.is_owed());
}

// The host's half.

fn ic_resp(changes: &[(usize, u8)]) -> Vec<u8> {
    let mut response = IcResp::new_zeroed();
    response.common = CommonHeader::new(Kind::IcResp, 0);
    response.h2c_data_bytes_max = 8192.into();
    with(pdu(&response, &[], PLAIN), changes)
}

fn c2h_data(command_id: u16, offset: u32, bytes: usize, flags: u8) -> Vec<u8> {
    let header = C2hData {
        common: CommonHeader::new(Kind::C2hData, flags),
        command_id: command_id.into(),
        reserved: [0; 2],
        offset: offset.into(),
        bytes: (bytes as u32).into(),
        reserved_end: [0; 4],
    };
    pdu(&header, &vec![3; bytes], PLAIN)
}

fn r2t(command_id: u16, offset: u32, bytes: u32) -> Vec<u8> {
    let header = R2t {
        common: CommonHeader::new(Kind::R2t, 0),
        command_id: command_id.into(),
        transfer_tag: 0x5a5a.into(),
        offset: offset.into(),
        bytes: bytes.into(),
        reserved: [0; 4],
    };
    pdu(&header, &[], PLAIN)
}

fn capsule_resp(command_id: u16) -> Vec<u8> {
    let mut completion = Completion::new_zeroed();
    completion.command_id = command_id.into();
    let common = CommonHeader::new(Kind::CapsuleResp, 0);
    pdu(&CapsuleResp { common, entry: zerocopy::transmute!(completion) }, &[], PLAIN)
}

/// A host with a read of 8000 bytes (0), a write of 20,000 (1) and one of 512 in its capsule (2) under way.
struct Host {
    initiator: Initiator,
    input: Vec<u8>,
    output: Vec<u8>,
    completed: Vec<(usize, u32)>,
    termination: Option<Termination>,
}

impl Host {
    fn new() -> Host {
        let mut output = Vec::new();
        let initiator = Initiator::new(InitiatorConfig::default(), &mut output);
        output.clear();
        Host { initiator, input: Vec::new(), output, completed: Vec::new(), termination: None }
    }

    fn hear(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        loop {
            let (consumed, event) = self.initiator.next(&self.input, &mut self.output);
            self.input.drain(..consumed);
            match event {
                initiator::Event::Starved => break,
                initiator::Event::Step => {}
                initiator::Event::Initialised => {
                    let out = &mut self.output;
                    let read = self.initiator.submit(&entry(2, 0, 0, 0), Transfer::ToHost(8000), out).unwrap();
                    let write = self.initiator.submit(&entry(1, 0, 0, 0), Transfer::ToController(20_000), out).unwrap();
                    let in_capsule = self.initiator.submit(&entry(1, 0, 0, 0), Transfer::ToController(512), out);
                    let in_capsule = in_capsule.unwrap();
                    assert_eq!([read.0, write.0, in_capsule.0].map(CommandId::index), [0, 1, 2]);
                    assert_eq!(in_capsule.1.map(|outgoing| outgoing.bytes), Some(512));
                    out.resize(out.len() + 512, 0);
                }
                initiator::Event::Send(outgoing) => {
                    self.output.resize(self.output.len() + outgoing.bytes as usize, 0);
                }
                initiator::Event::Payload { bytes, .. } => {
                    let there = self.input.len().min(bytes as usize);
                    if there == 0 {
                        break;
                    }
                    let piece: Vec<u8> = self.input.drain(..there).collect();
                    self.initiator.took(&piece);
                }
                initiator::Event::Completed { command, received, .. } => {
                    self.completed.push((command.index(), received));
                }
                initiator::Event::Terminated(termination) => {
                    self.termination = Some(termination);
                    break;
                }
            }
        }
    }
}

fn check_host(before: &[Vec<u8>], broken: Vec<u8>, status: FatalErrorStatus, information: u32, header_bytes: usize) {
    let mut host = Host::new();
    before.iter().for_each(|pdu| host.hear(pdu));
    assert_eq!(host.termination, None, "the part before was to go well");
    let said = host.output.len();
    broken.chunks(1).for_each(|byte| host.hear(byte));
    let error = FatalError { status, information };
    assert_eq!(host.termination, Some(Termination::Sent(error)));
    let mut wanted = vec![2, 0, 24, 0, 24 + header_bytes as u8, 0, 0, 0, status.code() as u8, 0];
    wanted.extend_from_slice(&information.to_le_bytes());
    wanted.extend_from_slice(&[0; 10]);
    wanted.extend_from_slice(&broken[..header_bytes]);
    assert_eq!(host.output[said..], wanted, "{error}");
    host.hear(&ic_resp(&[]));
    assert_eq!(host.output.len(), said + wanted.len());
}

#[test]
fn a_controller_answers_an_icreq_with_one_sound_icresp() {
    check_host(&[], capsule_resp(0), SEQUENCE, 0, 8);
    check_host(&[ic_resp(&[])], ic_resp(&[]), SEQUENCE, 0, 8);
    check_host(&[], ic_resp(&[(0, 0)]), INVALID, 0, 8);
    check_host(&[], ic_resp(&[(4, 127)]), INVALID, 4, 8);
    check_host(&[], ic_resp(&[(8, 1)]), FatalErrorStatus::UnsupportedParameter, 8, 128);
    check_host(&[], ic_resp(&[(10, 32)]), INVALID, 10, 128);
    // Digests that were not asked for.
    check_host(&[], ic_resp(&[(11, digest_bit::HEADER)]), INVALID, 11, 128);
    check_host(&[], ic_resp(&[(11, digest_bit::DATA)]), INVALID, 11, 128);
    check_host(&[], ic_resp(&[(12, 0xfc), (13, 0x0f)]), INVALID, 12, 128);
    check_host(&[], ic_resp(&[(12, 0x01)]), INVALID, 12, 128);
}

#[test]
fn a_controller_that_breaks_a_rule_is_told_which() {
    let opened = [ic_resp(&[])];
    check_host(&opened, c2h_data(9, 0, 512, 0), INVALID, 8, 24);
    check_host(&opened, c2h_data(1, 0, 512, 0)[..24].to_vec(), SEQUENCE, 0, 24);
    check_host(&opened, with(c2h_data(0, 0, 512, 0), &[(16, 1)]), INVALID, 16, 24);
    check_host(&opened, c2h_data(0, 0, 512, flag::SUCCESS), INVALID, 1, 8);
    check_host(&opened, c2h_data(0, 0, 8001, 0)[..24].to_vec(), FatalErrorStatus::DataOutOfRange, 0, 24);
    check_host(&opened, c2h_data(0, u32::MAX, 8, 0)[..24].to_vec(), FatalErrorStatus::DataOutOfRange, 0, 24);
    check_host(&opened, c2h_data(0, 4, 512, 0)[..24].to_vec(), SEQUENCE, 0, 24);
    let whole = [ic_resp(&[]), c2h_data(0, 0, 512, flag::LAST)];
    check_host(&whole, c2h_data(0, 512, 512, flag::LAST)[..24].to_vec(), SEQUENCE, 0, 24);
    check_host(&opened, capsule_resp(3), INVALID, 20, 24);
    check_host(&[ic_resp(&[]), capsule_resp(0)], capsule_resp(0), INVALID, 20, 24);
    check_host(&opened, r2t(9, 0, 512), INVALID, 8, 24);
    check_host(&opened, r2t(0, 0, 512), SEQUENCE, 0, 24);
    check_host(&opened, r2t(2, 0, 512), SEQUENCE, 0, 24);
    check_host(&opened, r2t(1, 0, 0), INVALID, 16, 24);
    check_host(&opened, r2t(1, 0, 20_001), FatalErrorStatus::DataOutOfRange, 0, 24);
    check_host(&opened, r2t(1, u32::MAX, 2), FatalErrorStatus::DataOutOfRange, 0, 24);
}

#[test]
fn a_controller_that_asks_for_more_data_than_a_command_has_is_refused() {
    let all = [ic_resp(&[]), r2t(1, 0, 12_000), r2t(1, 12_000, 8000)];
    check_host(&all, r2t(1, 0, 4), FatalErrorStatus::DataOutOfRange, 0, 24);
    check_host(&all[..2], r2t(1, 8000, 12_000), FatalErrorStatus::DataOutOfRange, 0, 24);
}

#[test]
fn a_host_answers_an_r2t_in_pieces_of_maxh2cdata() {
    let mut host = Host::new();
    host.hear(&ic_resp(&[]));
    host.output.clear();
    host.hear(&r2t(1, 1000, 17_000));
    let mut output = &host.output[..];
    let mut pieces = Vec::new();
    while !output.is_empty() {
        let header: &H2cData = zerocopy::FromBytes::ref_from_bytes(&output[..24]).unwrap();
        assert_eq!((header.command_id.get(), header.transfer_tag.get()), (1, 0x5a5a));
        pieces.push((header.offset.get(), header.bytes.get(), header.common.flags));
        output = &output[header.common.length.get() as usize..];
    }
    assert_eq!(pieces, [(1000, 8192, 0), (9192, 8192, 0), (17_384, 616, flag::LAST)]);
}

#[test]
fn success_with_the_last_data_ends_a_command() {
    let mut host = Host::new();
    host.hear(&ic_resp(&[]));
    host.hear(&c2h_data(0, 0, 4000, 0));
    host.hear(&c2h_data(0, 4000, 4000, flag::LAST | flag::SUCCESS));
    assert_eq!((host.completed, host.initiator.commands_under_way()), (vec![(0, 8000)], 2));
}
