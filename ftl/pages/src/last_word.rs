//! What becomes of a page in an index that is rebuilt: what is left of the log has the last word on it, or the media have.
//!
//! | what is left of the log says last | on the media | then |
//! |---|---|---|
//! | it is at a place | that place has it | that place |
//! | it is at a place | that place does not | lost: an error until it is put or deleted |
//! | it is deleted | any version, or none | there is none |
//! | its bytes | | these bytes, or their place |
//! | it is lost | any version, or none | lost |
//! | nothing, but an earlier part of the log has its bytes | no newer version | these bytes |
//! | nothing | any version | the newest: a page that was deleted may be back |
//! | nothing, and the old index has it | none | lost |
//!
//! Where something of the log may be missing behind it, its word is *in doubt*:
//!
//! | a word in doubt | on the media | then |
//! |---|---|---|
//! | any | a version that was put later | the newest |
//! | it is at a place | that place has something else by now, and there is a version | the newest: it has moved |
//! | it is at a place | the chunk of that place is gone | lost, though it may have moved: an older version would be taken for it |

use crate::place::Place;

/// The last word of the log on a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Word {
    At(Place),
    Carried(u64, Vec<u8>),
    Deleted,
    Lost,
}

/// The same, as it was said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Said {
    pub word: Word,
    /// The version of its group: all that was put later has this one, or a greater one.
    pub version: u64,
    /// Something of the log may be missing behind it.
    pub is_in_doubt: bool,
}

/// What the media say of the place that the log has the last word on.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum AtPlace {
    /// It has the page, in this version.
    Confirmed(u64),
    /// It cannot be read.
    Damaged,
    /// It has something else, or nothing.
    #[default]
    Other,
}

/// All that is known of a page.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Evidence<'a> {
    pub said: Option<&'a Said>,
    pub at_place: AtPlace,
    /// Of the media: its newest version.
    pub newest: Option<(u64, Place)>,
    /// The version whose bytes an earlier part of the log has.
    pub carried: Option<u64>,
}

/// What becomes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// It is there, as the log says.
    Known(Place),
    /// It has the bytes that the log says.
    KnownBytes,
    /// It is there, as its newest version on the media says.
    Rebuilt(Place),
    /// It has bytes that an earlier part of the log has.
    RebuiltBytes,
    /// It was somewhere, and is not.
    Lost,
    /// There is none.
    Gone,
}

impl Evidence<'_> {
    /// See the module.
    pub(crate) fn fate(&self) -> Fate {
        let newest = self.newest.map(|(_, place)| place);
        let Some(Said { word, version, is_in_doubt }) = self.said else {
            let is_newer = |carried: &u64| self.newest.is_none_or(|(newest, _)| newest < *carried);
            return match (self.carried.filter(is_newer), newest) {
                (Some(_), _) => Fate::RebuiltBytes,
                (None, Some(newest)) => Fate::Rebuilt(newest),
                (None, None) => Fate::Lost,
            };
        };
        let later = |than: u64| self.newest.filter(|(newest, _)| *is_in_doubt && *newest >= than);
        let put_later = match (word, self.at_place) {
            (Word::At(_), AtPlace::Confirmed(confirmed)) => later(confirmed + 1),
            (Word::Carried(carried, _), _) => later(carried + 1),
            _ => later(*version),
        };
        if let Some((_, place)) = put_later {
            return Fate::Rebuilt(place);
        }
        match (word, self.at_place) {
            (Word::At(place), AtPlace::Confirmed(_)) => Fate::Known(*place),
            (Word::At(_), AtPlace::Other) if *is_in_doubt => newest.map_or(Fate::Lost, Fate::Rebuilt),
            (Word::At(_) | Word::Lost, _) => Fate::Lost,
            (Word::Carried(carried, _), _) => {
                let in_unit = self.newest.filter(|(newest, _)| newest == carried);
                in_unit.map_or(Fate::KnownBytes, |(_, place)| Fate::Known(place))
            }
            (Word::Deleted, _) => Fate::Gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: u64 = 20;

    fn place(number: u64) -> Place {
        Place::from_bits(number << 32).unwrap()
    }

    /// What becomes of a page of which the log says this, without and with doubt.
    fn fates(word: Word, at_place: AtPlace, newest: Option<(u64, Place)>) -> [Fate; 2] {
        [false, true].map(|is_in_doubt| {
            let said = Said { word: word.clone(), version: GROUP, is_in_doubt };
            Evidence { said: Some(&said), at_place, newest, carried: None }.fate()
        })
    }

    #[test]
    fn a_place_that_the_log_names_counts_if_it_has_the_page() {
        let at = || Word::At(place(1));
        let known = Fate::Known(place(1));
        assert_eq!(fates(at(), AtPlace::Confirmed(15), Some((15, place(1)))), [known; 2]);
        // A version from between what the place has and the group was committed, or not: the group before would name it.
        assert_eq!(fates(at(), AtPlace::Confirmed(15), Some((16, place(2)))), [known, Fate::Rebuilt(place(2))]);
        assert_eq!(fates(at(), AtPlace::Confirmed(15), Some((GROUP, place(2)))), [known, Fate::Rebuilt(place(2))]);
    }

    #[test]
    fn a_place_that_cannot_be_read_is_lost_unless_something_was_put_later() {
        let at = || Word::At(place(1));
        for newest in [None, Some((15, place(2))), Some((GROUP - 1, place(2)))] {
            assert_eq!(fates(at(), AtPlace::Damaged, newest), [Fate::Lost; 2]);
        }
        let newer = Some((GROUP, place(2)));
        assert_eq!(fates(at(), AtPlace::Damaged, newer), [Fate::Lost, Fate::Rebuilt(place(2))]);
    }

    #[test]
    fn a_place_that_has_something_else_is_one_that_the_page_has_moved_from() {
        let at = || Word::At(place(1));
        assert_eq!(fates(at(), AtPlace::Other, Some((15, place(2)))), [Fate::Lost, Fate::Rebuilt(place(2))]);
        assert_eq!(fates(at(), AtPlace::Other, None), [Fate::Lost; 2]);
    }

    #[test]
    fn a_page_that_the_log_says_is_deleted_or_lost_stays_so() {
        for (word, fate) in [(Word::Deleted, Fate::Gone), (Word::Lost, Fate::Lost)] {
            for newest in [None, Some((GROUP - 1, place(2)))] {
                assert_eq!(fates(word.clone(), AtPlace::Other, newest), [fate; 2]);
            }
            let newer = Some((GROUP, place(2)));
            assert_eq!(fates(word.clone(), AtPlace::Other, newer), [fate, Fate::Rebuilt(place(2))]);
        }
    }

    #[test]
    fn bytes_in_the_log_count_wherever_they_are() {
        let bytes = || Word::Carried(15, vec![1]);
        for newest in [None, Some((14, place(2)))] {
            assert_eq!(fates(bytes(), AtPlace::Other, newest), [Fate::KnownBytes; 2]);
        }
        assert_eq!(fates(bytes(), AtPlace::Other, Some((15, place(2)))), [Fate::Known(place(2)); 2]);
        let newer = Some((16, place(2)));
        assert_eq!(fates(bytes(), AtPlace::Other, newer), [Fate::KnownBytes, Fate::Rebuilt(place(2))]);
    }

    #[test]
    fn where_the_log_says_nothing_the_newest_version_counts() {
        let fate = |newest, carried| Evidence { newest, carried, ..Evidence::default() }.fate();
        let newest = Some((15, place(2)));
        assert_eq!(fate(None, None), Fate::Lost);
        assert_eq!(fate(newest, None), Fate::Rebuilt(place(2)));
        assert_eq!(fate(newest, Some(15)), Fate::Rebuilt(place(2)));
        assert_eq!(fate(newest, Some(16)), Fate::RebuiltBytes);
        assert_eq!(fate(None, Some(3)), Fate::RebuiltBytes);
    }
}
