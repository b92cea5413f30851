//! The open streams of a namespace (Base, "Streams").
//!
//! A host may call its streams what it likes, from 1 to FFFFh; a drive has a few handles. A stream is open from its first
//! write until it is released, and has a handle as long:
//!
//! ```text
//!   stream     7    FFFFh    none   12
//!   handle     1      2       3      4
//! ```
//!
//! A write to one stream too many gets the handle of the stream that was not written to for the longest time, which is thereby
//! released. A handle that has had a stream is renewed for the next one, which begins with chunks of its own. Streams are shared by all hosts (SSID): an identifier means the same stream, whoever says it.
use openftl_parts::words::Handle;

#[derive(Clone, Copy, Debug)]
struct Place {
    /// 0: no stream.
    stream: u16,
    /// When it, or the last stream that was here, was last written to, in writes; 0: there was none.
    written: u64,
}

/// The open streams of one namespace.
#[derive(Default, Debug)]
pub(crate) struct Streams {
    /// At their handle less one.
    places: Vec<Place>,
    /// NSA: streams that the namespace has to itself, or 0.
    allocated: u16,
    writes: u64,
}

impl Streams {
    /// None is open, and up to `most` may be.
    pub fn new(most: u8) -> Streams {
        Streams { places: vec![Place { stream: 0, written: 0 }; usize::from(most)], allocated: 0, writes: 0 }
    }

    /// The most that may ever be open.
    pub fn most(&self) -> u16 {
        self.places.len() as u16
    }

    /// NSA.
    pub fn allocated(&self) -> u16 {
        self.allocated
    }

    /// Those that may be open now.
    fn limit(&self) -> usize {
        if self.allocated > 0 { usize::from(self.allocated) } else { self.places.len() }
    }

    /// The handle of a write to `stream`, which is opened if it is not, and whether it had another stream before. Stream 0 is
    /// none.
    #[inline]
    pub fn write(&mut self, stream: u16) -> (Handle, bool) {
        if stream == 0 {
            return (Handle::NONE, false);
        }
        self.writes += 1;
        let limit = self.limit();
        let places = &self.places[..limit];
        let open = places.iter().position(|place| place.stream == stream);
        // A place without a stream counts as the oldest.
        let age = |place: &Place| if place.stream == 0 { 0 } else { place.written };
        let Some(index) = open.or_else(|| (0..limit).min_by_key(|index| age(&places[*index]))) else {
            return (Handle::NONE, false);
        };
        let had_another = open.is_none() && self.places[index].written > 0;
        self.places[index] = Place { stream, written: self.writes };
        (Handle(index as u8 + 1), had_another)
    }

    /// Every open stream, in ascending order.
    pub fn open(&self) -> Vec<u16> {
        let mut open: Vec<u16> = self.places.iter().map(|place| place.stream).filter(|stream| *stream != 0).collect();
        open.sort_unstable();
        open
    }

    /// Releases a stream; one that is not open is as good as released.
    pub fn release(&mut self, stream: u16) {
        let named = self.places.iter_mut().filter(|place| place.stream == stream);
        named.for_each(|place| place.stream = 0);
    }

    /// Has up to `wanted` streams for the namespace alone, and returns how many; `None` if it has some already. Streams
    /// beyond them are released.
    pub fn allocate(&mut self, wanted: u16) -> Option<u16> {
        if self.allocated > 0 {
            return None;
        }
        self.allocated = wanted.min(self.most());
        let limit = self.limit();
        self.places[limit..].iter_mut().for_each(|place| place.stream = 0);
        Some(self.allocated)
    }

    /// Gives all of them back, and releases every stream.
    pub fn give_back(&mut self) {
        self.allocated = 0;
        self.places.iter_mut().for_each(|place| place.stream = 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(streams: &mut Streams, stream: u16) -> u8 {
        streams.write(stream).0.0
    }

    #[test]
    fn a_stream_keeps_its_handle_as_long_as_it_is_open() {
        let mut streams = Streams::new(3);
        assert_eq!([7, 0xffff, 7, 0].map(|stream| handle(&mut streams, stream)), [1, 2, 1, 0]);
        assert_eq!(streams.open(), [7, 0xffff]);
        streams.release(7);
        streams.release(99);
        assert_eq!(streams.open(), [0xffff]);
        assert_eq!([5, 0xffff].map(|stream| handle(&mut streams, stream)), [1, 2]);
    }

    #[test]
    fn one_stream_too_many_takes_the_place_of_the_one_not_written_for_longest() {
        let mut streams = Streams::new(2);
        assert_eq!([1, 2, 1, 3, 2].map(|stream| handle(&mut streams, stream)), [1, 2, 1, 2, 1]);
        assert_eq!(streams.open(), [2, 3]);
    }

    #[test]
    fn a_handle_that_had_another_stream_is_told_from_a_new_one() {
        let mut streams = Streams::new(2);
        let taken_over = |streams: &mut Streams, stream| streams.write(stream).1;
        assert_eq!([1, 2, 1].map(|stream| taken_over(&mut streams, stream)), [false; 3]);
        assert_eq!(
            [3, 3, 2].map(|stream| taken_over(&mut streams, stream)),
            [true, false, true],
            "of the least recent"
        );
        streams.release(3);
        assert_eq!(
            [3, 3].map(|stream| taken_over(&mut streams, stream)),
            [true, false],
            "of one released, even its own"
        );
        streams.give_back();
        assert_eq!([8, 9].map(|stream| taken_over(&mut streams, stream)), [true; 2]);
    }

    #[test]
    fn no_more_streams_are_open_than_were_allocated() {
        let mut streams = Streams::new(4);
        for stream in 1..=4 {
            streams.write(stream);
        }
        assert_eq!(streams.allocate(2), Some(2));
        assert_eq!(streams.open(), [1, 2]);
        assert_eq!(streams.allocate(2), None, "what is allocated is first given back");
        assert_eq!([5, 6, 7].map(|stream| handle(&mut streams, stream)), [1, 2, 1]);
        streams.give_back();
        assert_eq!((streams.open(), streams.allocated()), (vec![], 0));
        assert_eq!(streams.allocate(100), Some(4), "as many as there are");
    }

    #[test]
    fn without_streams_no_write_has_a_handle() {
        assert_eq!(Streams::new(0).write(1), (Handle::NONE, false));
    }
}
