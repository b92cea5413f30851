//! `--record FILE`: what hosts ask of the drive goes to a file, which `bench` and its like play as the load `trace:FILE`.

use crate::failure::Failure;
use crate::namespaces::Namespaces;
use openftl_server::Recorder;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A recording that is made.
pub struct Recording {
    path: PathBuf,
    pub recorder: Arc<Recorder>,
}

impl Recording {
    /// Refuses a file that is there, before anything is opened.
    pub fn expect_new(path: &Path) -> Result<(), Failure> {
        match path.try_exists() {
            Ok(false) => Ok(()),
            Ok(true) => Err(exists(path)),
            Err(error) => Err(failure(path, &error)),
        }
    }

    /// Begins a new file for what is asked of the namespaces of these names.
    pub fn begin(path: &Path, names: &[String], namespaces: &Namespaces) -> Result<Recording, Failure> {
        let has_zones = namespaces.others.iter().any(|drive| drive.zones().is_some());
        if namespaces.drives.is_empty() && !has_zones {
            let why = format!(
                "--record {}: nothing of this drive is blocks or zones, and no other requests are recorded",
                path.display()
            );
            return Err(Failure::bad_input(why).fix("leave it away"));
        }
        let file = match File::create_new(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Err(exists(path)),
            Err(error) => return Err(failure(path, &error)),
        };
        let recorder = Recorder::new(names, Box::new(file)).map_err(|error| failure(path, &error))?;
        Ok(Recording { path: path.to_owned(), recorder: Arc::new(recorder) })
    }

    /// Writes what is left of it, and returns how many requests there are.
    pub fn finish(&self) -> Result<u64, Failure> {
        let Recording { path, recorder } = self;
        recorder.finish().map_err(|error| {
            Failure::failed(format_args!("--record {}: {error}; the recording ends too early", path.display()))
                .fix("make room there, or name a file elsewhere; the drive is closed, and nothing is wrong with it")
        })
    }
}

fn exists(path: &Path) -> Failure {
    Failure::bad_input(format_args!("--record {}: there is such a file", path.display()))
        .fix("remove it, or choose another name")
}

fn failure(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format_args!("--record {}: {error}", path.display()))
        .fix("name a file in a folder that can be written to")
}
