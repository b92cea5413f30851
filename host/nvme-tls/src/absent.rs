//! What takes the place of TLS in a build without it: types of which there is nothing.

use std::convert::Infallible;
use std::io::{self, Read, Write};

use openftl_nvme_auth::{PskIdentity, TlsPsk};

use crate::TlsError;

/// What a controller would know.
#[derive(Debug)]
pub struct Acceptor(Infallible);

/// One end of a connection that cannot be.
#[derive(Debug)]
pub struct Session(Infallible);

impl Acceptor {
    /// # Errors
    /// Always.
    pub fn new(psks: impl IntoIterator<Item = TlsPsk>) -> Result<Acceptor, TlsError> {
        let _ = psks;
        Err(TlsError::NotBuilt)
    }

    /// # Errors
    /// Never: there is no acceptor.
    pub fn accept(&self) -> Result<Session, TlsError> {
        match self.0 {}
    }
}

impl Session {
    /// # Errors
    /// Always.
    pub fn connect(psks: impl IntoIterator<Item = TlsPsk>) -> Result<Session, TlsError> {
        let _ = psks;
        Err(TlsError::NotBuilt)
    }

    /// Never called: there is no session.
    #[must_use]
    pub fn is_open(&self) -> bool {
        match self.0 {}
    }

    /// Never called.
    #[must_use]
    pub fn identity(&self) -> Option<&PskIdentity> {
        match self.0 {}
    }

    /// # Errors
    /// Never called.
    pub fn shake_hands(&mut self, _: &mut (impl Read + Write)) -> io::Result<()> {
        match self.0 {}
    }

    /// # Errors
    /// Never called.
    pub fn read(&mut self, _: &mut (impl Read + Write), _: &mut [u8]) -> io::Result<usize> {
        match self.0 {}
    }

    /// # Errors
    /// Never called.
    pub fn write(&mut self, _: &mut (impl Read + Write), _: &[u8]) -> io::Result<usize> {
        match self.0 {}
    }

    /// Never called.
    pub fn close(&mut self, _: &mut (impl Read + Write)) {
        match self.0 {}
    }

    /// Never called.
    pub fn rest(&mut self) {
        match self.0 {}
    }
}
