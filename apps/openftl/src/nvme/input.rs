//! What is to be written to a namespace.

use crate::failure::Failure;
use std::fs::File;
use std::io::{self, Read, stdin};
use std::path::Path;

/// A file, or standard input.
pub struct Input {
    reader: Box<dyn Read>,
    pub name: String,
    /// Bytes that it has, if that can be known.
    pub bytes: Option<u64>,
}

impl Input {
    /// Opens the file that `--input` names, or standard input, which is -.
    pub fn open(path: &Path) -> Result<Input, Failure> {
        if path.as_os_str() == "-" {
            return Ok(Input { reader: Box::new(stdin().lock()), name: "standard input".to_owned(), bytes: None });
        }
        let name = path.display().to_string();
        let unreadable = |error: io::Error| Failure::bad_input(format_args!("--input: cannot read {name}: {error}"));
        let file = File::open(path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        let bytes = metadata.is_file().then_some(metadata.len());
        Ok(Input { reader: Box::new(file), name, bytes })
    }

    /// Reads until `room` is full or the input has ended.
    pub fn fill(&mut self, room: &mut [u8]) -> Result<usize, Failure> {
        let mut filled = 0;
        while filled < room.len() {
            match self.reader.read(&mut room[filled..]) {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::failed(format_args!("cannot read {}: {error}", self.name))),
            }
        }
        Ok(filled)
    }
}
