//! Objects: ranges of logical blocks that a host has announced, each written and ended as a whole (FlashAlloc).
//!
//! ```text
//!   announced ──▶ being written ──▶ all of it written, or trimmed ──▶ over: its class serves the next object
//!                      │
//!                      └── announced again, in whole or in part, by another ──▶ over
//! ```
//!
//! As long as an object is being written, each write inside its extents goes to its chunks, in whatever order the writes
//! come and whatever comes between them, overwrites too. What is special:
//!
//! | case | what happens |
//! |---|---|
//! | it does not fill its last chunk, or is smaller than one | the next object goes on there: objects share with objects only |
//! | a part of it is never written | it stays; trim that part, or all of it, and it is over |
//! | a block is overwritten before all are written | it goes to the object's chunks again, and is written as before |
//! | its range is announced again while it is being written | it is over, and the new one begins |
//! | it is over, and its range is written | those are ordinary writes |
//! | more than can be told apart | the announcement is refused: [`ObjectError::TooMany`] |
//! | no clean chunk | the write waits for one, as any write does; see also [`crate::placement`] |
//! | power fails, or the drive is closed | no object is being written; its blocks are there, as their writes promise |

use openftl_parts::target::{EXTENTS_MAX, Extent, ObjectError};
use openftl_parts::words::Class;
use std::collections::BTreeMap;

/// One that is being written.
#[derive(Default)]
struct Object {
    /// In order of their blocks, each with the number that its first block has in the object.
    extents: Vec<(Extent, u64)>,
    /// Blocks that were written or trimmed, by their number.
    settled: Vec<u64>,
    /// Blocks that were not.
    left: u64,
}

impl Object {
    /// Notes that a block of the object was written or trimmed. Returns whether it was the last.
    fn settle(&mut self, number: u64) -> bool {
        let word = &mut self.settled[number as usize / 64];
        let is_new = *word & 1 << (number % 64) == 0;
        *word |= 1 << (number % 64);
        self.left -= u64::from(is_new);
        is_new && self.left == 0
    }
}

/// An extent of an object, as writes look for it.
#[derive(Clone, Copy)]
struct Part {
    extent: Extent,
    class: Class,
    /// The number that its first block has in the object.
    number: u64,
}

/// How objects ended since somebody asked.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Ended {
    /// All of them was written.
    pub written: u64,
    /// What was not written was trimmed.
    pub trimmed: u64,
    /// Others took their place.
    pub replaced: u64,
}

/// The objects that are being written.
pub struct Objects {
    /// By class; the ordinary one has none.
    objects: Vec<Object>,
    /// Extents of all objects by their first block.
    parts: BTreeMap<u64, Part>,
    /// The extent that was written last: writes come in runs.
    last: Option<Part>,
    /// Classes without an object; that of the last one to end is on top.
    idle: Vec<Class>,
    ended: Ended,
}

impl Objects {
    /// Room for so many.
    #[must_use]
    pub fn new(most: u16) -> Objects {
        Objects {
            objects: (0..=most).map(|_| Object::default()).collect(),
            parts: BTreeMap::new(),
            last: None,
            idle: (1..=most).rev().map(Class).collect(),
            ended: Ended::default(),
        }
    }

    /// How many are being written.
    #[must_use]
    pub fn live(&self) -> usize {
        self.objects.len() - 1 - self.idle.len()
    }

    /// Classes without an object, which may still have open chunks; that of the last one to end comes last.
    pub(crate) fn idle(&self) -> &[Class] {
        &self.idle
    }

    /// How objects ended since this was last asked.
    pub(crate) fn take_ended(&mut self) -> Ended {
        std::mem::take(&mut self.ended)
    }

    /// Announces one. Returns its class. Those whose place it takes are over.
    ///
    /// # Errors
    /// If it has too many extents or none, if they overlap, or if there are too many objects.
    pub fn announce(&mut self, extents: &[Extent]) -> Result<Class, ObjectError> {
        let most = self.objects.len() as u32 - 1;
        if most == 0 {
            return Err(ObjectError::NotKept);
        }
        if extents.is_empty() || extents.len() > EXTENTS_MAX {
            return Err(ObjectError::Extents { extents: extents.len() });
        }
        let mut sorted = extents.to_vec();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0].end() > pair[1].first) {
            return Err(ObjectError::Overlap { block: pair[1].first });
        }
        let mut replaced: Vec<Class> = sorted.iter().flat_map(|extent| self.overlapping(*extent)).collect();
        replaced.sort_unstable();
        replaced.dedup();
        if replaced.is_empty() && self.idle.is_empty() {
            return Err(ObjectError::TooMany { most });
        }
        for class in replaced {
            self.end(class);
            self.ended.replaced += 1;
        }
        let class = self.idle.pop().expect("one is idle, or just became so");
        let mut number = 0;
        let object = &mut self.objects[class.index()];
        for extent in sorted {
            self.parts.insert(extent.first, Part { extent, class, number });
            object.extents.push((extent, number));
            number += extent.blocks;
        }
        object.settled.resize(number.div_ceil(64) as usize, 0);
        object.left = number;
        Ok(class)
    }

    /// The class of a block that is written: that of its object, if it is of one that is being written.
    #[inline]
    pub fn write(&mut self, block: u64) -> Class {
        let part = match self.last {
            Some(last) if last.extent.first <= block && block < last.extent.end() => last,
            _ => match self.parts.range(..=block).next_back() {
                Some((_, part)) if block < part.extent.end() => *self.last.insert(*part),
                _ => return Class::ORDINARY,
            },
        };
        if self.objects[part.class.index()].settle(part.number + block - part.extent.first) {
            self.end(part.class);
            self.ended.written += 1;
        }
        part.class
    }

    /// Notes that blocks are trimmed.
    pub fn trim(&mut self, trimmed: Extent) {
        if self.parts.is_empty() {
            return;
        }
        for class in self.overlapping(trimmed) {
            let object = &mut self.objects[class.index()];
            let mut is_over = false;
            for (extent, number) in std::mem::take(&mut object.extents) {
                let (first, end) = (extent.first.max(trimmed.first), extent.end().min(trimmed.end()));
                for block in first..end.max(first) {
                    is_over |= object.settle(number + block - extent.first);
                }
                object.extents.push((extent, number));
            }
            if is_over {
                self.end(class);
                self.ended.trimmed += 1;
            }
        }
    }

    /// Objects with a block in `extent`, each once.
    fn overlapping(&self, extent: Extent) -> Vec<Class> {
        let before = self.parts.range(..extent.first).next_back().filter(|(_, part)| part.extent.end() > extent.first);
        let inside = self.parts.range(extent.first..extent.end());
        let mut classes: Vec<Class> = before.into_iter().chain(inside).map(|(_, part)| part.class).collect();
        classes.sort_unstable();
        classes.dedup();
        classes
    }

    /// The object of `class` is over.
    fn end(&mut self, class: Class) {
        let object = std::mem::take(&mut self.objects[class.index()]);
        for (extent, _) in object.extents {
            self.parts.remove(&extent.first);
        }
        self.last = None;
        self.idle.push(class);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(first: u64, blocks: u64) -> Extent {
        Extent { first, blocks }
    }

    fn write(objects: &mut Objects, blocks: impl IntoIterator<Item = u64>) -> Vec<Class> {
        blocks.into_iter().map(|block| objects.write(block)).collect()
    }

    #[test]
    fn writes_inside_an_object_have_its_class_in_any_order_until_all_is_written() {
        let mut objects = Objects::new(4);
        let class = objects.announce(&[extent(100, 3), extent(10, 2)]).unwrap();
        assert_eq!(
            write(&mut objects, [102, 9, 10, 10, 12, 99, 103]),
            [class, Class(0), class, class, Class(0), Class(0), Class(0)]
        );
        assert_eq!(objects.live(), 1, "an overwrite does not count twice");
        assert_eq!(write(&mut objects, [11, 100, 101, 100]), [class, class, class, Class(0)]);
        assert_eq!((objects.live(), objects.take_ended()), (0, Ended { written: 1, ..Ended::default() }));
    }

    #[test]
    fn a_trim_ends_what_is_left_of_an_object_and_no_more() {
        let mut objects = Objects::new(4);
        let class = objects.announce(&[extent(10, 4), extent(20, 4)]).unwrap();
        write(&mut objects, [10, 11, 20, 21]);
        objects.trim(extent(0, 13));
        objects.trim(extent(14, 6));
        assert_eq!((objects.write(22), objects.live()), (class, 1));
        objects.trim(extent(13, 100));
        assert_eq!((objects.write(23), objects.take_ended().trimmed), (Class(0), 1));
    }

    #[test]
    fn an_object_in_the_place_of_another_ends_it() {
        let mut objects = Objects::new(2);
        objects.announce(&[extent(0, 10)]).unwrap();
        objects.announce(&[extent(20, 10)]).unwrap();
        assert_eq!(objects.announce(&[extent(40, 10)]), Err(ObjectError::TooMany { most: 2 }));
        let class = objects.announce(&[extent(5, 20)]).unwrap();
        assert_eq!((objects.live(), objects.take_ended().replaced), (1, 2));
        assert_eq!(write(&mut objects, [4, 5, 24, 25]), [Class(0), class, class, Class(0)]);
    }

    #[test]
    fn what_is_no_object_is_refused_and_nothing_has_happened() {
        let mut objects = Objects::new(2);
        let many: Vec<Extent> = (0..257).map(|index| extent(2 * index, 1)).collect();
        assert_eq!(objects.announce(&[]), Err(ObjectError::Extents { extents: 0 }));
        assert_eq!(objects.announce(&many), Err(ObjectError::Extents { extents: 257 }));
        assert_eq!(objects.announce(&[extent(8, 4), extent(5, 4)]), Err(ObjectError::Overlap { block: 8 }));
        assert_eq!((objects.live(), objects.write(8)), (0, Class(0)));
        assert_eq!(Objects::new(0).announce(&[extent(0, 1)]), Err(ObjectError::NotKept));
    }

    #[test]
    fn the_class_of_the_last_object_to_end_serves_the_next() {
        let mut objects = Objects::new(8);
        let classes = [0, 10, 20].map(|first| objects.announce(&[extent(first, 2)]).unwrap());
        write(&mut objects, [10, 11]);
        assert_eq!(objects.announce(&[extent(30, 2)]), Ok(classes[1]));
    }
}
