//! The catalog is there twice: what one copy has lost is in the other.

use openftl_core::Ppa;
use openftl_media::Media;
use openftl_parts::Access;
use openftl_sim::TableWorld;
use openftl_sim::damage::area_on_media;
use openftl_sim::played::Played;
use openftl_sim::stage::Stage;
use openftl_sim::world::{config, profile};

const UNPROTECTED: (&str, &str) = ("power_loss_protection = true", "power_loss_protection = false");

/// A drive with tables and files, all of them durable.
fn used(changes: &[(&str, &str)], seed: u64) -> TableWorld {
    let mut world = TableWorld::new(profile("tiny", changes), config(200, seed), 8, seed);
    for _ in 0..150 {
        world.operation(3);
    }
    world.flush();
    world.settle();
    world
}

/// Blocks of the catalog on media, those of the first copy and those of the second.
fn copies(world: &mut TableWorld) -> [Vec<Ppa>; 2] {
    let places = area_on_media(world.ftl().block());
    let (first, second) = places.split_at(places.len() / 2);
    [first, second].map(|copy| copy.iter().flatten().copied().collect())
}

/// The same drive, of which the medium has lost these blocks when the power is cut.
fn without(world: &mut TableWorld, lost: &[Ppa], corrupt: bool) -> TableWorld {
    let mut struck = world.fork();
    for ppa in lost {
        let done = if corrupt { struck.device().corrupt(*ppa) } else { struck.device().inject_read_failure(*ppa) };
        done.unwrap();
    }
    struck.power_cut(false);
    struck
}

#[test]
fn every_block_of_the_catalog_can_be_lost_in_one_copy() {
    let mut lost = 0;
    for (changes, seed) in [(&[][..], 1), (&[UNPROTECTED][..], 2), (&[][..], 3)] {
        let mut world = used(changes, seed);
        for (at, ppa) in copies(&mut world).into_iter().flatten().enumerate() {
            let mut struck = without(&mut world, &[ppa], at % 2 == 0);
            struck.recover().unwrap_or_else(|error| panic!("seed {seed}, block {at}: {error}"));
            struck.verify_all();
            struck.clean_restart();
            struck.verify_all();
            lost += 1;
        }
    }
    assert!(lost > 20, "{lost} blocks are not many");
}

#[test]
fn a_first_copy_that_has_lost_anything_is_written_anew_and_a_power_cut_may_come_while_it_is() {
    for (changes, seed) in [(&[][..], 4), (&[UNPROTECTED][..], 5)] {
        let mut world = used(changes, seed);
        let [first, _] = copies(&mut world);
        let mut struck = without(&mut world, &first[..1], true);
        struck.wire.watch();
        struck.recover().unwrap();
        struck.flush();
        struck.settle();
        let points = struck.crash_points();
        assert!(points.len() > 10, "{} states are not all there are", points.len());
        for (point, history) in points {
            let name = format!("seed {seed}, cut after event {}", point.event);
            let mut found = struck.after_cut(point, history);
            found.recover().unwrap_or_else(|error| panic!("{name}: {error}"));
            found.verify_all();
        }
        // The first copy does without the second from now on.
        let [_, second] = copies(&mut struck);
        let mut again = without(&mut struck, &second, false);
        again.recover().unwrap();
        again.verify_all();
    }
}

#[test]
fn copies_of_a_block_of_the_catalog_are_in_different_groups() {
    let mut world = used(&[UNPROTECTED], 6);
    let format = world.wire.geometry().format();
    let group = |ppa: Ppa| format.group_of(format.pu_of(format.chunk_of(ppa)));
    for _ in 0..40 {
        world.operation(3);
        world.flush();
        world.settle();
        let places = area_on_media(world.ftl().block());
        let (first, second) = places.split_at(places.len() / 2);
        for (block, copies) in first.iter().zip(second).enumerate() {
            if let (Some(one), Some(other)) = copies {
                assert_ne!(group(*one), group(*other), "block {block} and its copy");
            }
        }
    }
}

#[test]
fn a_catalog_that_is_lost_in_both_copies_is_refused_with_the_block() {
    let mut world = used(&[UNPROTECTED], 7);
    let lost = copies(&mut world).concat();
    let mut struck = without(&mut world, &lost, true);
    let refusal = struck.open(Access::ReadWrite).expect_err("nothing of the catalog is left").to_string();
    assert!(refusal.contains(" of the catalog cannot be read"), "{refusal}");
}
