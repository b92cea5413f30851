//! What a controller knows: the identities of the hosts that may connect, and their keys.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use openftl_nvme_auth::{HashFunction, PskIdentity, TlsPsk};
use s2n_tls::callbacks::{ClientHelloCallback, ConnectionFuture};
use s2n_tls::config::{Builder, Config};
use s2n_tls::connection::Connection;
use s2n_tls::enums::PskHmac;
use s2n_tls::error::Error;
use s2n_tls::psk::Psk;
use s2n_tls::security::Policy;

use crate::hello::identities;
use crate::session::Session;
use crate::{TlsError, library};

/// TLS 1.3 alone, its two AES-GCM suites (and ChaCha20), key exchange over X25519, P-256 and P-384. The policies of the
/// library that have a number or a year do not change.
const POLICY: &str = "AWS-CRT-SDK-TLSv1.3-2023";

/// Identities of a ClientHello that are looked up; a host has one or two.
const OFFERED_MAX: usize = 16;

/// Bytes that one system call sends: four records, and what they cost.
const SEND_BYTES: u32 = 4 * ((16 << 10) + 64);

/// What a controller knows.
#[derive(Clone)]
pub struct Acceptor {
    config: Config,
    known: Arc<Known>,
}

/// Keys by the identities that travel.
struct Known(HashMap<Vec<u8>, (Psk, Arc<PskIdentity>)>);

/// The connection is given the keys that its ClientHello asks for, and no others: what a handshake costs does not depend on
/// how many hosts there are.
struct Choice(Arc<Known>);

impl Acceptor {
    /// Knows these keys.
    ///
    /// # Errors
    /// If the library refuses one.
    pub fn new(psks: impl IntoIterator<Item = TlsPsk>) -> Result<Acceptor, TlsError> {
        let known = psks.into_iter().map(|psk| {
            let entry = (library_psk(&psk)?, Arc::new(psk.identity));
            Ok((entry.1.text.clone().into_bytes(), entry))
        });
        let known = Arc::new(Known(known.collect::<Result<_, Error>>().map_err(library)?));
        let mut builder = builder().map_err(library)?;
        builder.set_client_hello_callback(Choice(Arc::clone(&known))).map_err(library)?;
        Ok(Acceptor { config: builder.build().map_err(library)?, known })
    }

    /// One end of a connection that a host has begun.
    ///
    /// # Errors
    /// If the library has no memory.
    pub fn accept(&self) -> Result<Session, TlsError> {
        Session::server(self.config.clone(), self.clone()).map_err(library)
    }

    /// Whom the identity that was agreed on is for.
    pub(crate) fn identity(&self, text: &[u8]) -> Option<Arc<PskIdentity>> {
        self.known.0.get(text).map(|(_, identity)| Arc::clone(identity))
    }
}

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acceptor").field("identities", &self.known.0.len()).finish_non_exhaustive()
    }
}

impl ClientHelloCallback for Choice {
    fn on_client_hello(&self, connection: &mut Connection) -> Result<Option<Pin<Box<dyn ConnectionFuture>>>, Error> {
        let hello = connection.client_hello()?.raw_message()?;
        for (index, identity) in identities(&hello).take(OFFERED_MAX).enumerate() {
            let is_new = !identities(&hello).take(index).any(|before| before == identity);
            if let Some((psk, _)) = self.0.0.get(identity).filter(|_| is_new) {
                connection.append_psk(psk)?;
            }
        }
        Ok(None)
    }
}

/// What both ends are made with.
pub(crate) fn builder() -> Result<Builder, Error> {
    let mut builder = Builder::new();
    builder.set_security_policy(&Policy::from_version(POLICY)?)?;
    builder.with_system_certs(false)?;
    builder.set_send_buffer_size(SEND_BYTES)?;
    Ok(builder)
}

pub(crate) fn library_psk(psk: &TlsPsk) -> Result<Psk, Error> {
    let mut builder = Psk::builder()?;
    builder.set_identity(psk.identity.text.as_bytes())?;
    builder.set_secret(psk.key())?;
    builder.set_hmac(if psk.hash == HashFunction::Sha384 { PskHmac::SHA384 } else { PskHmac::SHA256 })?;
    builder.build()
}
