//! Asynchronous events and Abort.

use crate::harness::*;
use openftl_nvme::wire::log::id;
use openftl_nvme::wire::opcode::{self, admin};
use openftl_nvme::wire::{feature, identify::cns};
use openftl_nvme::{BlockFormat, Health, Queue, Status};

const WANTED: u32 = 0x1ff;

/// A ready controller with `requests` requests held, of a host that wants to hear of everything.
fn listening(requests: usize) -> (World, Queue) {
    let mut world = World::new();
    let mut queue = world.ready();
    world.ok(&mut queue, set_feature(feature::id::ASYNCHRONOUS_EVENTS, 0, WANTED));
    for _ in 0..requests {
        assert_eq!(world.run(&mut queue, event_request(), &[]), None);
    }
    (world, queue)
}

fn changed(world: &mut World, queue: &mut Queue) -> Vec<u8> {
    world.ok(queue, log_page(id::CHANGED_NAMESPACES, 0, 4096, 0));
    world.data.chunks(4).map(|id| id[0]).take_while(|id| *id != 0).collect()
}

#[test]
fn a_namespace_that_comes_or_goes_is_told_and_named() {
    let (mut world, mut queue) = listening(2);
    world.target.attach(0, block(7, BlockFormat::FourKib)).unwrap();
    world.target.detach(0, 2).unwrap();
    assert_eq!(world.events(&mut queue), [(Status::SUCCESS, 0x0004_0002)], "once");
    assert_eq!(changed(&mut world, &mut queue), [2, 7]);
    assert_eq!(changed(&mut world, &mut queue), [], "read is forgotten");
    world.target.attach(0, block(2, BlockFormat::FourKib)).unwrap();
    assert_eq!(world.events(&mut queue), [(Status::SUCCESS, 0x0004_0002)]);
    world.ok(&mut queue, identify(cns::ACTIVE_NAMESPACES, 0));
    assert_eq!(world.data[..20], [1, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn a_page_read_with_the_event_retained_changes_nothing() {
    let (mut world, mut queue) = listening(2);
    world.target.detach(0, 2).unwrap();
    assert_eq!(world.events(&mut queue).len(), 1);
    world.ok(&mut queue, retained(log_page(id::CHANGED_NAMESPACES, 0, 4096, 0)));
    world.target.detach(0, 1).unwrap();
    assert_eq!(world.events(&mut queue), [], "still masked");
    assert_eq!(changed(&mut world, &mut queue), [1, 2]);
}

#[test]
fn a_namespace_may_be_detached_from_one_controller_alone() {
    let (mut world, mut queue) = listening(2);
    let mut other = world.ready();
    let name = queue.controller();
    for _ in 0..2 {
        world.target.set_attached(name, 2, false).unwrap();
    }
    assert_eq!(world.events(&mut queue), [(Status::SUCCESS, 0x0004_0002)]);
    assert_eq!(changed(&mut world, &mut queue), [2]);
    let listed = |world: &mut World, queue: &mut Queue, structure| {
        world.ok(queue, identify(structure, 0));
        [world.data[0], world.data[4], world.data[8]]
    };
    assert_eq!(listed(&mut world, &mut queue, cns::ACTIVE_NAMESPACES), [1, 5, 0]);
    assert_eq!(listed(&mut world, &mut queue, cns::ALLOCATED_NAMESPACES), [1, 2, 5]);
    assert_eq!(listed(&mut world, &mut other, cns::ACTIVE_NAMESPACES), [1, 2, 5]);
    let mut io = world.connect_io(&queue, 1);
    assert_eq!(world.io(&mut io, ranged(opcode::io::READ, 2, 0, 1)), Err(Status::INVALID_FIELD));
    world.target.set_attached(name, 2, true).unwrap();
    assert!(world.io(&mut io, ranged(opcode::io::READ, 2, 0, 1)).is_ok());
    assert_eq!(changed(&mut world, &mut queue), [2]);
}

#[test]
fn a_namespace_detached_everywhere_is_gone_for_controllers_that_come_later_too() {
    let (mut world, mut queue) = listening(2);
    assert_eq!(world.target.set_attached_everywhere(0, 2, false), Ok(true));
    assert_eq!(world.target.set_attached_everywhere(0, 2, false), Ok(false), "it is already");
    assert!(!world.target.subsystems()[0].offers(2) && world.target.subsystems()[0].offers(5));
    let mut later = world.ready();
    for queue in [&mut queue, &mut later] {
        let mut io = world.connect_io(queue, 1);
        assert_eq!(world.io(&mut io, ranged(opcode::io::READ, 2, 0, 1)), Err(Status::INVALID_FIELD));
        world.ok(queue, identify(cns::ACTIVE_NAMESPACES, 0));
        assert_eq!([world.data[0], world.data[4], world.data[8]], [1, 5, 0]);
        world.ok(queue, identify(cns::ALLOCATED_NAMESPACES, 0));
        assert_eq!([world.data[0], world.data[4], world.data[8]], [1, 2, 5], "it is in the subsystem");
    }
    assert_eq!(world.events(&mut queue), [(Status::SUCCESS, 0x0004_0002)], "once");
    assert_eq!(changed(&mut world, &mut queue), [2]);
    assert_eq!(changed(&mut world, &mut later), [], "nothing has changed since it came");
    assert_eq!(world.target.set_attached_everywhere(0, 2, true), Ok(true));
    assert_eq!(changed(&mut world, &mut later), [2]);
    assert_eq!(world.events(&mut queue), [(Status::SUCCESS, 0x0004_0002)]);
    let mut io = world.connect_io(&queue, 2);
    assert!(world.io(&mut io, ranged(opcode::io::READ, 2, 0, 1)).is_ok());
}

#[test]
fn a_namespace_that_is_taken_away_and_comes_again_is_attached() {
    let (mut world, _queue) = listening(0);
    world.target.set_attached_everywhere(0, 2, false).unwrap();
    world.target.detach(0, 2).unwrap();
    assert!(!world.target.subsystems()[0].offers(2));
    world.target.attach(0, block(2, BlockFormat::FourKib)).unwrap();
    assert!(world.target.subsystems()[0].offers(2));
}

#[test]
fn namespaces_that_cannot_come_or_go_say_why() {
    let (mut world, queue) = listening(0);
    let name = queue.controller();
    for (error, expected) in [
        (world.target.attach(0, block(0, BlockFormat::FourKib)), "namespace id 0 is not between 1 and 64"),
        (world.target.attach(0, block(65, BlockFormat::FourKib)), "namespace id 65 is not between 1 and 64"),
        (world.target.attach(0, block(1, BlockFormat::FourKib)), "namespace 1 exists already; choose another id"),
        (world.target.detach(0, 3).map(drop), "there is no namespace 3"),
        (world.target.set_attached(name, 3, true), "there is no namespace 3"),
        (world.target.set_attached_everywhere(0, 3, false).map(drop), "there is no namespace 3"),
        (world.target.set_attached(name, 0, true), "namespace id 0 is not between 1 and 64"),
    ] {
        assert_eq!(error.unwrap_err().to_string(), expected);
    }
}

#[test]
fn new_warnings_are_told_once() {
    let (mut world, mut queue) = listening(4);
    let healthy = Health::default();
    world.target.health_is(0, &healthy);
    assert_eq!(world.events(&mut queue), []);
    let worn = Health { is_read_only: true, spare_percent: 5, ..healthy };
    world.target.health_is(0, &worn);
    world.target.health_is(0, &worn);
    assert_eq!(world.events(&mut queue), [(Status::SUCCESS, 0x0002_0001), (Status::SUCCESS, 0x0002_0201)]);
    world.ok(&mut queue, log_page(id::SMART, 0, 512, 0));
    world.target.health_is(0, &worn);
    assert_eq!(world.events(&mut queue), [], "nothing new");
    world.target.health_is(0, &Health { temperature: 400, ..worn });
    assert_eq!(world.events(&mut queue), [(Status::SUCCESS, 0x0002_0101)]);
}

#[test]
fn a_threshold_that_is_crossed_as_it_is_set_is_told() {
    let (mut world, mut queue) = listening(2);
    let (room, cold) = (world.drives.health.temperature, 250);
    world.ok(&mut queue, set_feature(feature::id::TEMPERATURE_THRESHOLD, 0, u32::from(room) + 1));
    assert_eq!(world.events(&mut queue), []);
    for _ in 0..2 {
        world.ok(&mut queue, set_feature(feature::id::TEMPERATURE_THRESHOLD, 0, cold));
    }
    assert_eq!(world.events(&mut queue), [(Status::SUCCESS, 0x0002_0101)], "once");
    world.ok(&mut queue, log_page(id::SMART, 0, 512, 0));
    assert_eq!(world.data[0], 1 << 1);
    assert_eq!(world.events(&mut queue), []);
}

#[test]
fn chunks_that_have_something_to_say_are_told_of() {
    let (mut world, mut queue) = listening(2);
    world.target.chunks_notify(0, 5);
    assert_eq!(world.events(&mut queue), [(Status::SUCCESS, 0x00d0_d007)]);
    world.target.detach(0, 5).unwrap();
    assert_eq!(world.events(&mut queue).len(), 1, "the namespace is gone");
    world.target.chunks_notify(0, 5);
    assert_eq!(world.events(&mut queue), []);
}

#[test]
fn an_event_waits_for_a_request_and_a_request_for_an_event() {
    let (mut world, mut queue) = listening(0);
    world.target.detach(0, 1).unwrap();
    assert_eq!(world.events(&mut queue), []);
    assert_eq!(world.run(&mut queue, event_request(), &[]), None);
    assert_eq!(world.events(&mut queue).len(), 1);
}

#[test]
fn more_requests_than_announced_are_refused() {
    let (mut world, mut queue) = listening(4);
    assert_eq!(world.refused(&mut queue, event_request()), Status::EVENT_LIMIT_EXCEEDED);
}

#[test]
fn abort_ends_a_held_request_and_is_truthful_about_others() {
    let (mut world, mut queue) = listening(2);
    let abort = |queue: u32, id: u32| command(admin::ABORT, 0, [queue | id << 16, 0, 0, 0, 0, 0]);
    // Two properties and a feature came before the requests.
    assert_eq!(world.ok(&mut queue, abort(0, 77)), 1, "not under way");
    assert_eq!(world.ok(&mut queue, abort(1, 5)), 1, "not ours to stop");
    let held = world.target.subsystems()[0].controllers().count();
    assert_eq!(held, 1);
    let ids: Vec<u32> = (1..20).filter(|id| world.ok(&mut queue, abort(0, *id)) == 0).collect();
    assert_eq!(ids.len(), 2);
    assert_eq!(world.events(&mut queue), [(Status::ABORT_REQUESTED, 0); 2]);
    assert_eq!(queue.under_way(), 0);
}
