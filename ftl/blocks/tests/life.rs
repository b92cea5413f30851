//! What a drive has done over all its sessions: a restart keeps it, and a crash takes along little.

use crate::checkpoint_interval::World;

#[test]
fn a_restart_keeps_what_the_drive_has_done() {
    let mut world = World::new();
    (0..40).for_each(|block| world.write(block));
    let before = world.ftl.life();
    assert_eq!((before.opened, before.not_closed, before.host_blocks_written, before.writes), (1, 0, 40, 40));
    assert!(before.media_blocks_written > 40, "the log counts too: {before:?}");
    let mut world = world.restart();
    let after = world.ftl.life();
    assert_eq!((after.opened, after.not_closed, after.host_blocks_written, after.writes), (2, 0, 40, 40));
    assert!(after.media_blocks_written > before.media_blocks_written, "closing and opening program blocks");
    assert_eq!(world.ftl.statistics().host_blocks_written, 0, "statistics are those of the session");
    world.write(0);
    assert_eq!(world.ftl.life().host_blocks_written, 41);
}

#[test]
fn a_crash_is_counted_and_takes_along_what_no_superblock_said() {
    let mut world = World::new();
    (0..40).for_each(|block| world.write(block));
    let mut world = world.restart();
    world.write(0);
    let world = world.crash();
    let after = world.ftl.life();
    assert_eq!((after.opened, after.not_closed), (3, 1));
    assert_eq!(after.host_blocks_written, 40, "the last superblock is that of the opening");
}

#[test]
fn new_statistics_leave_the_life_as_it_is() {
    let mut world = World::new();
    (0..40).for_each(|block| world.write(block));
    let before = world.ftl.life();
    world.ftl.reset_statistics();
    assert_eq!(world.ftl.life(), before);
}
