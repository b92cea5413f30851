//! A volume for suites: a drive in a file with ALFS on it, mounted for all users.

use crate::shell;
use std::fs::{self, File};
use std::io::Error;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Who waits so long waits in vain.
const BOUND: Duration = Duration::from_secs(180);

/// The drive of all suites, beside the workspace's root.
const DRIVE: &str = "drives/amf.toml";

/// A drive with a file system, in a folder of its own.
pub struct Volume {
    /// The folder.
    pub folder: PathBuf,
    /// The folder that shows the file system. It goes with this.
    pub root: PathBuf,
    openftl: PathBuf,
    drive: PathBuf,
}

/// A mounted volume. Its server is killed when this is dropped.
pub struct Mounted<'a> {
    server: Child,
    volume: &'a Volume,
}

/// A drive that NVMe hosts are served, as zones. Its server is killed when this is dropped.
pub struct Served {
    server: Child,
    /// The place of the drive.
    pub uri: String,
}

impl Volume {
    /// An empty file system in `folder`, which is made anew.
    pub fn make(openftl: &Path, folder: PathBuf) -> Result<Volume, String> {
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(|error| at(&folder, &error))?;
        }
        // Short: some tests make sockets far below it, whose paths have 107 bytes at most.
        let root = std::env::temp_dir().join(format!("openftl-{}", std::process::id()));
        for folder in [&folder, &root] {
            fs::create_dir_all(folder).map_err(|error| at(folder, &error))?;
        }
        let drive = folder.join("drive.oftl");
        let volume = Volume { folder, root, openftl: openftl.to_owned(), drive };
        shell::output(volume.openftl(["create"]).arg(&volume.drive).arg("--drive").arg(shell::root().join(DRIVE)))?;
        shell::output(volume.openftl(["alfs", "mkfs"]).arg(&volume.drive))?;
        Ok(volume)
    }

    fn openftl<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(&self.openftl);
        // Cargo's programs would build others.
        command.args(words).env_remove("CARGO").stdin(Stdio::null());
        command
    }

    /// Mounts it, with what `words` say.
    pub fn mount(&self, words: &[&str]) -> Result<Mounted<'_>, String> {
        self.mount_of(&self.drive, words)
    }

    /// Mounts the drive at `place`.
    pub fn mount_of(&self, place: impl AsRef<Path>, words: &[&str]) -> Result<Mounted<'_>, String> {
        let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
        let outside = device(&self.folder);
        let log = self.log("mount.log")?;
        let mut command = self.openftl(["alfs", "mount"]);
        command.arg(place.as_ref()).arg(&self.root).args(words).stdout(Stdio::null()).stderr(log);
        let server = command.spawn().map_err(|error| format!("{}: {error}", shell::line(&command)))?;
        let mut mounted = Mounted { server, volume: self };
        wait_for("the mount", || match mounted.server.try_wait() {
            Ok(None) => Ok(device(&self.root).filter(|found| Some(*found) != outside).map(|_| ())),
            ended => Err(format!("`{}` ended: {ended:?}", shell::line(&command))),
        })?;
        Ok(mounted)
    }

    /// Has every node, name and segment compared.
    pub fn fsck(&self) -> Result<(), String> {
        shell::output(self.openftl(["alfs", "fsck"]).arg(&self.drive)).map(|text| print!("{text}"))
    }

    /// Serves the drive.
    pub fn serve(&self) -> Result<Served, String> {
        let description = self.folder.join("zones.toml");
        let text = fs::read_to_string(shell::root().join(DRIVE)).map_err(|error| at(Path::new(DRIVE), &error))?;
        let zones = text.replace("[ftl]\n", "[ftl]\ninterface = \"zones\"\n");
        let zones = zones.replace("amf.oftl", &self.drive.display().to_string());
        fs::write(&description, zones).map_err(|error| at(&description, &error))?;
        let log = self.log("serve.log")?;
        let mut command = self.openftl(["serve"]);
        command.arg(&self.drive).arg("--drive").arg(&description).args(["--nvme-tcp", "127.0.0.1:0"]).stdout(log);
        let server = command.spawn().map_err(|error| format!("{}: {error}", shell::line(&command)))?;
        let mut served = Served { server, uri: String::new() };
        let log = self.folder.join("serve.log");
        let port = wait_for("the server to listen", || match served.server.try_wait() {
            Ok(None) => {
                let said = fs::read_to_string(&log).map_err(|error| at(&log, &error))?;
                // The line that a host would type, when it is whole.
                let lines = said.rsplit_once('\n').map_or("", |(lines, _)| lines);
                let typed = lines.lines().find(|line| line.contains("nvme connect"));
                Ok(typed.and_then(|line| line.split_once("-s ")?.1.split(' ').next().map(str::to_owned)))
            }
            ended => Err(format!("`{}` ended: {ended:?}", shell::line(&command))),
        })?;
        served.uri = format!("nvme-tcp://127.0.0.1:{port}");
        Ok(served)
    }

    /// Cuts the power of the served drive, and turns it on again.
    pub fn power_cycle(&self) -> Result<(), String> {
        shell::output(self.openftl(["ctl"]).arg(&self.drive).args(["power-cycle", "--torn"])).map(drop)
    }

    /// A new file for what a program prints.
    pub fn log(&self, name: &str) -> Result<File, String> {
        let path = self.folder.join(name);
        File::create(&path).map_err(|error| at(&path, &error))
    }

    fn unmount_lazily(&self) {
        let _ = shell::succeeds(Command::new("umount").arg("--lazy").arg(&self.root));
    }
}

impl Mounted<'_> {
    /// Unmounts it, and looks whether all of it agrees.
    pub fn unmount(mut self) -> Result<(), String> {
        shell::run(Command::new("umount").arg(&self.volume.root))?;
        let status = self.server.wait().map_err(|error| error.to_string())?;
        if !status.success() {
            return Err(format!("the mount ended with {status}: {}", self.volume.folder.join("mount.log").display()));
        }
        self.volume.fsck()
    }

    /// Ends its server as `kill -9` does.
    pub fn kill(mut self) -> Result<(), String> {
        self.server.kill().and_then(|()| self.server.wait()).map_err(|error| error.to_string())?;
        self.volume.unmount_lazily();
        Ok(())
    }

    /// Unmounts what has lost its drive. The server must say so.
    pub fn unmount_without_drive(mut self) -> Result<(), String> {
        self.volume.unmount_lazily();
        let status = self.server.wait().map_err(|error| error.to_string())?;
        if status.success() { Err("a mount without its drive ended well".to_owned()) } else { Ok(()) }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // Only if it is empty: nothing is mounted there.
        let _ = fs::remove_dir(&self.root);
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // Both fail if it has ended already.
        let _ = self.server.kill();
        let _ = self.server.wait();
        self.volume.unmount_lazily();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Asks again and again until there is an answer.
pub fn wait_for<T>(what: &str, mut answer: impl FnMut() -> Result<Option<T>, String>) -> Result<T, String> {
    let started = Instant::now();
    loop {
        if let Some(answer) = answer()? {
            return Ok(answer);
        }
        if started.elapsed() > BOUND {
            return Err(format!("waited {BOUND:?} in vain for {what}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// An error of a file.
pub fn at(path: &Path, error: &Error) -> String {
    format!("{}: {error}", path.display())
}
