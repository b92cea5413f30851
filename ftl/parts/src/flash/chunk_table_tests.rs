use super::*;

fn closed_with(table: &mut ChunkTable, chunk: ChunkId, valid: &[u32]) {
    let format = Geometry::tiny().format();
    for block in valid {
        table.set_valid(format.ppa(chunk, *block));
    }
    table.set_usage(chunk, ChunkUse::Closed);
}

#[test]
fn the_greedy_victim_is_the_emptiest_also_after_invalidations() {
    let geometry = Geometry::tiny();
    let format = geometry.format();
    let mut table = ChunkTable::new(&geometry);
    let chunks: Vec<ChunkId> = geometry.chunk_ids().take(3).collect();
    closed_with(&mut table, chunks[0], &[0, 1, 2]);
    closed_with(&mut table, chunks[1], &[0, 1, 2, 3]);
    closed_with(&mut table, chunks[2], &(0..16).collect::<Vec<_>>());
    assert_eq!(table.victim(0), Some(chunks[0]));
    table.invalidate(format.ppa(chunks[1], 1));
    table.invalidate(format.ppa(chunks[1], 3));
    assert_eq!(table.victim(0), Some(chunks[1]));
    table.set_usage(chunks[1], ChunkUse::Victim);
    assert_eq!(table.victim(0), Some(chunks[0]));
    table.set_usage(chunks[0], ChunkUse::Victim);
    assert_eq!(table.victim(0), None, "a full chunk is no victim");
    assert_eq!(table.victim(1), None, "nothing is closed in the other group");
}

#[test]
fn the_emptiest_chunk_is_found_also_where_the_policy_chooses_another() {
    let geometry = Geometry::tiny();
    let mut table = ChunkTable::new(&geometry);
    table.choose_victims(VictimPolicy::Fifo, 0);
    let chunks: Vec<ChunkId> = geometry.chunk_ids().take(3).collect();
    closed_with(&mut table, chunks[0], &[0, 1]);
    assert_eq!(table.emptiest(0), Some(chunks[0]), "what holds least is the emptiest");
    table.place(chunks[1], 1);
    closed_with(&mut table, chunks[1], &[]);
    assert_eq!(table.emptiest(0), Some(chunks[0]), "a block of the other waits for its transaction");
    closed_with(&mut table, chunks[2], &[]);
    assert_eq!((table.victim(0), table.emptiest(0)), (Some(chunks[0]), Some(chunks[2])));
    assert_eq!(table.emptiest(1), None, "the other group has none");
}

#[test]
fn what_has_left_victims_is_counted_until_they_are_victims_no_more() {
    let geometry = Geometry::tiny();
    let mut table = ChunkTable::new(&geometry);
    let chunks: Vec<ChunkId> = geometry.chunk_ids().take(2).collect();
    closed_with(&mut table, chunks[0], &[0, 1]);
    closed_with(&mut table, chunks[1], &[0]);
    assert_eq!(table.emptied(), 0, "a closed chunk is no victim");
    let blocks = u64::from(geometry.blocks_per_chunk);
    table.set_usage(chunks[0], ChunkUse::Victim);
    table.set_usage(chunks[1], ChunkUse::Victim);
    assert_eq!(table.emptied(), 2 * blocks - 3);
    table.invalidate(geometry.format().ppa(chunks[0], 1));
    assert_eq!(table.emptied(), 2 * blocks - 2);
    table.set_usage(chunks[1], ChunkUse::Resetting);
    assert_eq!(table.emptied(), blocks - 1);
}

#[test]
fn a_chunk_with_uncommitted_blocks_is_no_candidate() {
    let geometry = Geometry::tiny();
    let mut table = ChunkTable::new(&geometry);
    let chunk = geometry.chunk_ids().next().unwrap();
    table.place(chunk, 1);
    table.set_usage(chunk, ChunkUse::Closed);
    assert_eq!(table.victim(0), None);
    table.commit(geometry.format().ppa(chunk, 0));
    assert_eq!(table.victim(0), Some(chunk));
}

#[test]
fn the_least_worn_closed_chunk_of_a_group_is_known() {
    let geometry = Geometry::tiny();
    let mut table = ChunkTable::new(&geometry);
    let chunks: Vec<ChunkId> = geometry.chunk_ids().take(3).collect();
    for (chunk, resets) in chunks.iter().zip([5, 2, 9]) {
        table.set_resets(*chunk, resets);
        table.set_usage(*chunk, ChunkUse::Closed);
    }
    assert_eq!((table.least_worn_closed(0), table.most_resets(0)), (Some((2, chunks[1])), 9));
    table.set_usage(chunks[1], ChunkUse::Victim);
    assert_eq!(table.least_worn_closed(0), Some((5, chunks[0])));
    table.count_reset(chunks[2]);
    assert_eq!((table.most_resets(0), table.most_resets(1), table.least_worn_closed(1)), (10, 0, None));
}

#[test]
fn valid_blocks_are_found_in_order() {
    let geometry = Geometry { blocks_per_chunk: 200, ..Geometry::tiny() };
    let mut table = ChunkTable::new(&geometry);
    let chunk = geometry.chunk_ids().nth(5).unwrap();
    for block in [0, 63, 64, 199] {
        table.set_valid(geometry.format().ppa(chunk, block));
    }
    let mut found = Vec::new();
    let mut next = 0;
    while let Some(block) = table.next_valid(chunk, next) {
        found.push(block);
        next = block + 1;
    }
    assert_eq!(found, [0, 63, 64, 199]);
}

#[test]
fn what_is_loaded_is_counted_as_if_it_were_marked_one_by_one() {
    let geometry = Geometry::tiny();
    let format = geometry.format();
    let (mut one, mut other) = (ChunkTable::new(&geometry), ChunkTable::new(&geometry));
    let written = vec![3; format.chunk_ids()];
    let chunks: Vec<ChunkId> = geometry.chunk_ids().take(3).collect();
    let places = [Some((0, 2)), None, Some((1, 0)), Some((0, 0)), Some((2, 1))];
    let places = places.map(|place| place.map(|(chunk, block): (usize, u32)| format.ppa(chunks[chunk], block)));
    assert_eq!(one.load_valid(places.into_iter(), &written), Ok(4));
    places.iter().flatten().for_each(|ppa| other.set_valid(*ppa));
    let counts = |table: &ChunkTable| chunks.iter().map(|chunk| table.valid(*chunk)).collect::<Vec<_>>();
    assert_eq!((counts(&one), one.valid_total()), (counts(&other), other.valid_total()));
    assert!(places.iter().flatten().all(|ppa| one.is_valid(*ppa)));
    for wrong in [places[2], Some(format.ppa(chunks[0], 3)), Some(Ppa(u64::from(u32::MAX >> 1)))] {
        let mut table = ChunkTable::new(&geometry);
        let places = places.into_iter().chain([None, wrong, None]);
        assert_eq!(table.load_valid(places, &written), Err(6), "twice, not written, no such chunk");
        assert_eq!(table.valid_total(), 4);
    }
}
