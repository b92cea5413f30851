//! How what a host knows of lifetimes becomes what a drive is told.
//!
//! | word | a write is told with | and objects |
//! |---|---|---|
//! | `none` | no handle | are not told |
//! | `by-kind:8` | a handle for each kind of data; kinds beyond share the last | are not told |
//! | `by-object:8` | object after object the next handle, round and round | are not told |
//! | `allocate` | no handle | are announced before they are written |
//!
//! A binding never changes what is written, so drives can be compared under different bindings.

use crate::load::Hint;
use openftl_parts::Handle;
use std::fmt;
use std::str::FromStr;

/// Handles of a binding that says no number: as many as common drives have.
pub const HANDLES_DEFAULT: u8 = 8;

/// What of its hints a host tells the drive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Binding {
    /// Nothing.
    #[default]
    None,
    /// A handle for each kind of data.
    ByKind {
        /// How many there are; kinds beyond share the last.
        handles: u8,
    },
    /// Objects go round the handles in the order in which they are made. What is no object has no handle.
    ByObject {
        /// How many there are.
        handles: u8,
    },
    /// Objects are announced before they are written.
    Allocate,
}

impl Binding {
    /// What a write with this hint is told with.
    #[inline]
    #[must_use]
    pub fn handle(self, hint: Hint) -> Handle {
        match self {
            Binding::None | Binding::Allocate => Handle::NONE,
            Binding::ByKind { handles } => Handle(hint.kind.saturating_add(1).min(handles)),
            Binding::ByObject { handles } => match hint.object {
                0 => Handle::NONE,
                object => Handle(((object - 1) % u32::from(handles)) as u8 + 1),
            },
        }
    }
}

/// A binding that cannot be understood.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BindingError {
    /// No such word.
    #[error("`{word}` is no binding; write none, by-kind, by-kind:8, by-object, by-object:8 or allocate")]
    Word {
        /// What was written.
        word: String,
    },
    /// No number of handles.
    #[error("`{value}` is no number of handles for {word}; write a number from 1 to 255, as in {word}:8")]
    Handles {
        /// The binding.
        word: &'static str,
        /// What was written.
        value: String,
    },
}

impl FromStr for Binding {
    type Err = BindingError;

    fn from_str(text: &str) -> Result<Binding, BindingError> {
        let (word, value) = match text.split_once(':') {
            Some((word, value)) => (word, Some(value)),
            None => (text, None),
        };
        let handles = |word| match value {
            None => Ok(HANDLES_DEFAULT),
            Some(value) => match value.parse() {
                Ok(handles) if handles > 0 => Ok(handles),
                _ => Err(BindingError::Handles { word, value: value.to_owned() }),
            },
        };
        match (word, value) {
            ("none", None) => Ok(Binding::None),
            ("by-kind", _) => Ok(Binding::ByKind { handles: handles("by-kind")? }),
            ("by-object", _) => Ok(Binding::ByObject { handles: handles("by-object")? }),
            ("allocate", None) => Ok(Binding::Allocate),
            _ => Err(BindingError::Word { word: text.to_owned() }),
        }
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Binding::None => f.write_str("none"),
            Binding::ByKind { handles } => write!(f, "by-kind:{handles}"),
            Binding::ByObject { handles } => write!(f, "by-object:{handles}"),
            Binding::Allocate => f.write_str("allocate"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bindings_are_read_as_they_are_written() {
        for text in ["none", "by-kind:3", "by-object:8", "allocate"] {
            assert_eq!(text.parse::<Binding>().unwrap().to_string(), text);
        }
        assert_eq!("by-kind".parse(), Ok(Binding::ByKind { handles: 8 }));
        for (text, named) in
            [("by-kinds", "by-kinds"), ("by-kind:0", "`0`"), ("by-object:256", "`256`"), ("none:1", "none:1")]
        {
            let error = text.parse::<Binding>().unwrap_err().to_string();
            assert!(error.contains(named) && error.contains("write"), "{error}");
        }
    }

    #[test]
    fn kinds_beyond_the_handles_share_the_last_and_objects_go_round() {
        let handles = |binding: Binding| {
            [(0, 0), (1, 1), (2, 2), (255, 3)].map(|(kind, object)| binding.handle(Hint { kind, object }).0)
        };
        assert_eq!(handles(Binding::None), [0, 0, 0, 0]);
        assert_eq!(handles(Binding::Allocate), [0, 0, 0, 0]);
        assert_eq!(handles(Binding::ByKind { handles: 2 }), [1, 2, 2, 2]);
        assert_eq!(handles(Binding::ByKind { handles: 255 }), [1, 2, 3, 255]);
        assert_eq!(handles(Binding::ByObject { handles: 2 }), [0, 1, 2, 1]);
    }
}
