//! The stores that a VFS has open: each once in a process, however many connections use it.
//!
//! SQLite knows a database by one path. Here that is the path of the store, a slash, and the name in the store; so journals are found in the
//! same store as their database, and two stores may have databases of the same name.

use crate::ffi;
use crate::opened::Opened;
use crate::store::Store;
use crate::trouble::Trouble;
use crate::volume::Volume;
use openftl_drive::failure::Failure;
use openftl_drive::page_drive::{PageDrive, open_stored};
use openftl_nvme_media::uri::DriveUri;
use openftl_nvme_pages::RemoteStore;
use openftl_parts::Access;
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// How the file of a drive begins.
const DRIVE: &[u8; 8] = b"OFTLNAND";
/// What the name of a store is followed by in that of the folder with its locks.
const LOCKS: &str = "-locks";
/// The environment variable that names the store if nothing else does.
pub const STORE_VARIABLE: &str = "OPENFTL_STORE";

/// A store that connections share.
pub struct OpenStore {
    volume: Mutex<Volume>,
    /// Whose it is.
    pub registry: &'static Registry,
    /// The folder for the locks of its databases.
    pub locks: PathBuf,
}

/// The same, for one of them.
pub type Shared = Arc<OpenStore>;

impl OpenStore {
    /// Waits for the store.
    pub fn lock(&self) -> Result<MutexGuard<'_, Volume>, Trouble> {
        self.volume.lock().map_err(|_| broken())
    }
}

/// Where a store is.
#[derive(Clone, Debug)]
enum Place {
    /// The file that the flash is kept in, and the description that named it, if one did.
    File(Option<Box<PageDrive>>),
    /// A server has it.
    Served(DriveUri),
    /// It was provided.
    Provided,
}

#[derive(Default)]
struct Stores {
    /// Stores that were named, by how paths begin that lead to them.
    named: BTreeMap<String, Place>,
    open: BTreeMap<String, Shared>,
    provided: BTreeMap<String, Provider>,
}

/// Opens a store that a program has.
pub type Provider = Box<dyn Fn() -> Opened + Send>;

/// See the module. Each registered VFS has one.
#[derive(Default)]
pub struct Registry(Mutex<Stores>);

fn broken() -> Trouble {
    Trouble::new(ffi::IOERR, "a bug in libopenftl_sqlite has left the store in an unknown state: end the program")
}

/// Finds a store that is named by its file, by a drive description, or by the URI of a server.
fn find(store: &str) -> Result<(String, Place), Trouble> {
    if store.contains("://") {
        let uri = store.parse::<DriveUri>();
        let uri = uri.map_err(|error| Trouble::new(ffi::CANTOPEN, format!("{store}: {error}")))?;
        return Ok((uri.to_string(), Place::Served(uri)));
    }
    let store = Path::new(store);
    let failed = |path: &Path, error: std::io::Error| {
        Trouble::new(ffi::CANTOPEN, format!("the store {} cannot be opened: {error}", path.display()))
    };
    let mut start = [0; DRIVE.len()];
    let mut file = std::fs::File::open(store).map_err(|error| failed(store, error))?;
    let is_drive = file.read_exact(&mut start).is_ok() && start == *DRIVE;
    let (disk, described) = if is_drive {
        (store.to_owned(), None)
    } else {
        let drive = PageDrive::read(store).map_err(|failure| Trouble::opening(&failure))?;
        let Some(disk) = drive.disk().map(Path::to_owned) else {
            let failure = Failure::bad_input(format_args!("{}: its flash is in memory", store.display()));
            return Err(Trouble::opening(&failure.fix("write store = \"file\" and a path in [media]")));
        };
        (disk, Some(Box::new(drive)))
    };
    let disk = disk.canonicalize().map_err(|error| failed(&disk, error))?;
    match disk.into_os_string().into_string() {
        Ok(disk) => Ok((disk, Place::File(described))),
        Err(disk) => Err(Trouble::new(ffi::CANTOPEN, format!("the path of the store {disk:?} is not UTF-8"))),
    }
}

/// The file below which a path leads, as in `/srv/eleos.oftl/data.db`.
fn store_above(path: &str) -> Option<(&str, &str)> {
    let slashes = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0);
    slashes.map(|at| (&path[..at], &path[at + 1..])).find(|(store, _)| Path::new(store).is_file())
}

/// Store and name of a full path.
fn split<'a>(stores: &'a Stores, path: &'a str) -> Option<(&'a str, &'a str)> {
    let below = |store: &String| path.strip_prefix(store.as_str())?.strip_prefix('/').map(|_| store.len());
    let length = stores.named.keys().filter_map(below).max()?;
    Some((&path[..length], &path[length + 1..]))
}

/// The folder for the locks of databases in a store that a server has: of this user on this machine.
fn locks_of(uri: &DriveUri) -> Result<PathBuf, Trouble> {
    let cannot = |error: std::io::Error| Trouble::new(ffi::CANTOPEN, format!("the folder for locks: {error}"));
    let user = std::fs::metadata("/proc/self").map_err(cannot)?.uid();
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
    let name: String = uri.to_string().chars().map(plain).collect();
    let folder = std::env::temp_dir().join(format!("openftl-locks-{user}")).join(name);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(cannot)?;
    Ok(folder)
}

/// Opens a store.
fn open_store(store: &str, place: Option<&Place>) -> Result<Opened, Trouble> {
    if let Some(Place::Served(uri)) = place {
        let remote = RemoteStore::connect(uri);
        let remote = remote.map_err(|error| Trouble::new(ffi::CANTOPEN, format!("{store}: {error}")))?;
        return Ok(Opened { pages: Box::new(remote), local: None, is_shared: true, locks: locks_of(uri)? });
    }
    let disk = Path::new(store);
    let opened = match place {
        Some(Place::File(Some(drive))) => drive.open(Access::ReadWrite),
        _ => open_stored(disk, Access::ReadWrite),
    };
    match opened {
        Ok(pages) => Ok(Opened::local(pages, PathBuf::from(format!("{store}{LOCKS}")))),
        Err(failure) => Err(match holder(disk) {
            Some(process) => {
                Trouble::new(ffi::BUSY, format!("{store} is in use by {process}: one process has a store"))
            }
            None => Trouble::opening(&failure),
        }),
    }
}

impl Registry {
    fn stores(&self) -> Result<MutexGuard<'_, Stores>, Trouble> {
        self.0.lock().map_err(|_| broken())
    }

    /// Has URIs with `store=NAME` lead to a store that `open` opens, with the first connection and again after the last one was closed.
    ///
    /// # Errors
    /// If a bug has left the registry in an unknown state.
    pub fn provide(&self, name: &str, open: Provider) -> Result<(), Trouble> {
        let mut stores = self.stores()?;
        stores.named.insert(name.to_owned(), Place::Provided);
        stores.provided.insert(name.to_owned(), open);
        Ok(())
    }

    /// The path by which SQLite is to know the database `name`, in the store that `parameter` names.
    pub fn full_path(&self, name: &str, parameter: Option<&str>) -> Result<String, Trouble> {
        let mut stores = self.stores()?;
        if parameter.is_none() && split(&stores, name).is_some() {
            return Ok(name.to_owned());
        }
        let of_process = || match stores.open.len() {
            1 => stores.open.keys().next().cloned(),
            _ => None,
        };
        let (store, name) = match (parameter, store_above(name)) {
            (Some(store), _) => (store.to_owned(), name),
            (None, Some((store, name))) => (store.to_owned(), name),
            (None, None) => match std::env::var(STORE_VARIABLE).ok().or_else(of_process) {
                Some(store) => (store, name),
                None => {
                    let text = format!(
                        "{name}: no store; name it in the URI (store=PATH), or in the environment ({STORE_VARIABLE})"
                    );
                    return Err(Trouble::new(ffi::CANTOPEN, text));
                }
            },
        };
        let name = name.trim_start_matches("./").trim_start_matches('/');
        if name.is_empty() {
            return Err(Trouble::new(ffi::CANTOPEN, "a database needs a name"));
        }
        if let Some(Place::Provided) = stores.named.get(&store) {
            return Ok(format!("{store}/{name}"));
        }
        let (store, place) = find(&store)?;
        let path = format!("{store}/{name}");
        match (stores.named.get_mut(&store), place) {
            // What was described stays so.
            (Some(_), Place::File(None)) => {}
            (_, place) => _ = stores.named.insert(store, place),
        }
        Ok(path)
    }

    /// The open store and the name of a full path, if the store is open.
    pub fn look_up(&self, path: &str) -> Result<Option<(Shared, String)>, Trouble> {
        let stores = self.stores()?;
        let Some((store, name)) = split(&stores, path) else { return Ok(None) };
        Ok(stores.open.get(store).map(|shared| (Arc::clone(shared), name.to_owned())))
    }

    /// Calls `with` on the store and the name of a full path, which is opened for that if it is not open. `None` if the path is in no store.
    pub fn with_volume<T>(
        &'static self,
        path: &str,
        with: impl FnOnce(&mut Volume, &str) -> Result<T, Trouble>,
    ) -> Result<Option<T>, Trouble> {
        if split(&*self.stores()?, path).is_none() {
            return Ok(None);
        }
        let (shared, name) = self.open(path)?;
        let done = shared.lock().and_then(|mut volume| with(&mut volume, &name));
        self.close(shared)?;
        done.map(Some)
    }

    /// The store and the name of a full path. The first to ask opens the store.
    pub fn open(&'static self, path: &str) -> Result<(Shared, String), Trouble> {
        let mut stores = self.stores()?;
        let Some((store, name)) = split(&stores, path) else {
            return Err(Trouble::new(ffi::CANTOPEN, format!("{path} is in no store")));
        };
        let (store, name) = (store.to_owned(), name.to_owned());
        if let Some(shared) = stores.open.get(&store) {
            return Ok((Arc::clone(shared), name));
        }
        let opened = match stores.named.get(&store) {
            Some(Place::Provided) => stores.provided[&store](),
            place => open_store(&store, place)?,
        };
        let locks = opened.locks.clone();
        let volume = Store::new(opened).and_then(Volume::new)?;
        let shared = Arc::new(OpenStore { volume: Mutex::new(volume), registry: self, locks });
        stores.open.insert(store, Arc::clone(&shared));
        Ok((shared, name))
    }

    /// A file of a store is closed; the last one closes the store.
    pub fn close(&self, shared: Shared) -> Result<(), Trouble> {
        let mut stores = self.stores()?;
        // This use, and the registry.
        if Arc::strong_count(&shared) > 2 {
            return Ok(());
        }
        stores.open.retain(|_, open| !Arc::ptr_eq(open, &shared));
        match Arc::try_unwrap(shared) {
            Ok(store) => store.volume.into_inner().map_err(|_| broken())?.stop(),
            // A look-up in another thread ends without opening anything.
            Err(_) => Ok(()),
        }
    }
}

/// The other process that has a file locked, as the system names it.
fn holder(disk: &Path) -> Option<String> {
    let inode = format!(":{}", disk.metadata().ok()?.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let process = locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_it = words.get(1) == Some(&"FLOCK") && words.get(5)?.ends_with(&inode);
        is_it.then(|| words[4].to_owned())
    })?;
    if process == std::process::id().to_string() {
        return None;
    }
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    Some(format!("process {process} ({})", name.trim()))
}
