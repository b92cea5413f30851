//! The discovery subsystem.

use crate::harness::*;
use openftl_core::Time;
use openftl_nvme::wire::fabrics::{ANY_CONTROLLER, DISCOVERY_NQN};
use openftl_nvme::wire::identify::cns;
use openftl_nvme::wire::log::id;
use openftl_nvme::wire::opcode::admin;
use openftl_nvme::wire::{feature, text_of};
use openftl_nvme::{HostsAllowed, Port, Queue, Status, SubsystemConfig};

fn asking(world: &mut World) -> Queue {
    let (mut queue, _) = world.connect_with(connect(0, 31), connect_data(DISCOVERY_NQN, ANY_CONTROLLER));
    world.enable(&mut queue);
    queue
}

fn port(id: u16, address: &str) -> Port {
    Port { id, address: address.parse().unwrap() }
}

#[test]
fn the_log_names_each_subsystem_at_each_port() {
    let mut world = World::new();
    world.target.add_port(port(1, "192.168.77.1:4420"));
    world.target.add_port(port(2, "[::1]:4421"));
    let mut queue = asking(&mut world);
    world.ok(&mut queue, identify(cns::CONTROLLER, 0));
    assert_eq!((world.data[111], world.data[1806]), (2, 1), "a discovery controller");
    assert_eq!(text_of(&world.data[768..1024]), Some(DISCOVERY_NQN));

    world.ok(&mut queue, log_page(id::DISCOVERY, 0, 16, 0));
    assert_eq!(world.data, [4, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0], "generation and records");
    world.ok(&mut queue, log_page(id::DISCOVERY, 0, 3 * 1024, 0));
    let whole = world.data.clone();
    let record = &whole[1024..2048];
    assert_eq!(record[..10], [3, 1, 2, 4, 1, 0, 0xff, 0xff, 0, 4]);
    assert_eq!(&record[32..37], b"4420 ");
    assert_eq!(text_of(&record[256..512]), Some(SUBSYSTEM));
    assert_eq!(&record[512..525], b"192.168.77.1 ");
    let record = &whole[2048..];
    assert_eq!((record[1], &record[512..516]), (2, &b"::1 "[..]));
    world.ok(&mut queue, log_page(id::DISCOVERY, 0, 1024, 2048));
    assert_eq!(world.data, record, "from an offset on");
}

#[test]
fn a_host_sees_only_what_it_may_connect_to() {
    let mut world = World::new();
    let hidden =
        SubsystemConfig { hosts: HostsAllowed::Listed(Vec::new()), ..config("nqn.2024-01.org.example:hidden") };
    world.target.add_subsystem(hidden).unwrap();
    world.target.add_port(port(1, "127.0.0.1:4420"));
    let mut queue = asking(&mut world);
    world.ok(&mut queue, log_page(id::DISCOVERY, 0, 4096, 0));
    assert_eq!(world.data[8], 1);
    assert_eq!(text_of(&world.data[1024 + 256..1024 + 512]), Some(SUBSYSTEM));
    assert_eq!(world.data[2048..], [0; 2048]);
}

#[test]
fn a_host_that_stays_hears_of_changes() {
    let mut world = World::new();
    let mut queue = asking(&mut world);
    world.ok(&mut queue, set_feature(feature::id::ASYNCHRONOUS_EVENTS, 0, 1 << 31));
    assert_eq!(world.run(&mut queue, event_request(), &[]), None);
    world.target.add_port(port(1, "127.0.0.1:4420"));
    assert_eq!(world.events(&mut queue), [(Status::SUCCESS, 0x0070_f002)]);
}

#[test]
fn a_subsystem_that_cannot_be_says_why() {
    let mut world = World::new();
    let other = || config("nqn.2024-01.org.example:other");
    for (config, expected) in [
        (config(SUBSYSTEM), "nqn = `nqn.2024-01.org.example:drive`: another subsystem has that name"),
        (config(DISCOVERY_NQN), "nqn = `nqn.2014-08.org.nvmexpress.discovery`: another subsystem has that name"),
        (SubsystemConfig { serial: "9".repeat(21), ..other() }, "serial = `999999999999999999999`: must be at most 20"),
        (SubsystemConfig { model: "\u{e9}".to_owned(), ..other() }, "model = `\u{e9}`: must be at most 40"),
        (SubsystemConfig { in_capsule_bytes: 8191, ..other() }, "in_capsule_bytes = 8191: must be a multiple of 16"),
    ] {
        let error = world.target.add_subsystem(config).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    assert_eq!(world.target.subsystems().len(), 1);
}

#[test]
fn a_discovery_controller_does_nothing_else() {
    let mut world = World::new();
    let mut queue = asking(&mut world);
    for (entry, status) in [
        (identify(cns::ACTIVE_NAMESPACES, 0), Status::INVALID_FIELD),
        (log_page(id::SMART, 0, 512, 0), Status::INVALID_LOG_PAGE),
        (get_feature(feature::id::NUMBER_OF_QUEUES, 0), Status::INVALID_FIELD),
        (command(admin::ABORT, 0, [0; 6]), Status::INVALID_OPCODE),
        (command(admin::GEOMETRY, 5, [0; 6]), Status::INVALID_OPCODE),
    ] {
        assert_eq!(world.refused(&mut queue, entry), status);
    }
    let id = queue.controller().id;
    let refused = world.refused_connect(connect(1, 31), connect_data(DISCOVERY_NQN, id));
    assert_eq!(refused, (Status::COMMAND_SEQUENCE_ERROR, 0));
    let mut drive = world.ready();
    assert_eq!(world.refused(&mut drive, log_page(id::DISCOVERY, 0, 16, 0)), Status::INVALID_LOG_PAGE);
}

#[test]
fn nobody_asks_for_ever() {
    let mut world = World::new();
    let queue = asking(&mut world);
    let mut expired = Vec::new();
    let at = |seconds: u64| Time(seconds * 1_000_000_000);
    assert_eq!(world.target.next_due(), Some(at(120)));
    world.target.expire(at(120), &mut expired);
    world.target.expire(at(240), &mut expired);
    assert_eq!(expired, [queue.controller()]);
}
