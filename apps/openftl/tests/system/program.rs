//! Another program, run to its end within a bound.

use std::fs::File;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// No program here takes nearly as long, even on a busy machine: whoever reaches it hangs.
pub const BOUND: Duration = Duration::from_secs(180);

/// Asks again and again until there is an answer.
///
/// # Panics
/// If there is none within the bound; the message says what was waited for.
pub fn wait_for<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(started.elapsed() < BOUND, "waited {BOUND:?} in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A program that runs, killed when dropped. What it prints goes to files, so it never waits for a reader.
pub struct Running {
    /// The process.
    pub child: Child,
    /// How one would type it.
    pub line: String,
    stdout: File,
    stderr: File,
}

/// How a program ended, and what it printed.
#[derive(Debug)]
pub struct Ended {
    /// How one would type it.
    pub line: String,
    /// Its exit status.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error output.
    pub stderr: String,
}

impl Running {
    /// Starts `program`.
    pub fn start<'a>(program: &str, arguments: impl IntoIterator<Item = &'a str>) -> Running {
        let (stdout, stderr) = (temporary(), temporary());
        let mut command = Command::new(program);
        // As a root's login shell finds programs of /usr/sbin, and with messages in English.
        let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
        command.args(arguments).env("PATH", path).env("LC_ALL", "C").env("NO_COLOR", "1");
        // For programs that cargo runs, it would build others.
        command.env_remove("CARGO");
        command.stdin(Stdio::null()).stdout(clone(&stdout)).stderr(clone(&stderr));
        let words = command.get_args().map(|word| format!(" {}", word.to_string_lossy()));
        let line = format!("{program}{}", words.collect::<String>());
        let child = command.spawn().unwrap_or_else(|error| panic!("{line} does not start: {error}"));
        Running { child, line, stdout, stderr }
    }

    /// Whether it has ended, and how.
    pub fn ended(&mut self) -> Option<Ended> {
        let status = self.child.try_wait().expect("our own child can be waited for")?;
        let (stdout, stderr) = (self.stdout(), self.stderr());
        Some(Ended { line: self.line.clone(), status, stdout, stderr })
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Ended {
        let started = Instant::now();
        loop {
            if let Some(ended) = self.ended() {
                return ended;
            }
            if started.elapsed() > BOUND {
                panic!("{} still runs after {BOUND:?}\n{}\n{}", self.line, self.stdout(), self.stderr());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// What the system calls it.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it as `kill -9` does and waits until it is gone.
    pub fn kill(&mut self) {
        self.child.kill().expect("our own child can be killed");
        self.child.wait().expect("our own child can be waited for");
    }

    /// What it has printed to its standard output so far.
    pub fn stdout(&self) -> String {
        contents(&self.stdout)
    }

    /// What it has printed to its standard error output so far.
    pub fn stderr(&self) -> String {
        contents(&self.stderr)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// Asserts success.
    pub fn succeeded(self) -> Ended {
        assert!(self.status.success(), "{self}");
        self
    }

    /// Asserts failure of its own choice: an exit code, no signal, no panic.
    pub fn failed(self) -> Ended {
        assert!(self.status.code().is_some_and(|code| code != 0), "should have failed with an exit code: {self}");
        assert!(!self.stderr.contains("panicked at"), "{self}");
        self
    }

    /// Asserts that every one of `words` is in what it printed as an error, whatever their case.
    pub fn saying(self, words: &[&str]) -> Ended {
        let said = self.stderr.to_lowercase();
        for word in words {
            assert!(said.contains(&word.to_lowercase()), "does not say `{word}`: {self}");
        }
        self
    }

    /// Asserts that every one of `words` is in what it printed to standard output.
    pub fn printing(self, words: &[&str]) -> Ended {
        for word in words {
            assert!(self.stdout.contains(word), "does not print `{word}`: {self}");
        }
        self
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Ended { line, status, stdout, stderr } = self;
        write!(f, "{line} ended with {status}\n--- stdout\n{stdout}\n--- stderr\n{stderr}")
    }
}

/// Runs `program` to its end, whatever that is.
pub fn run<'a>(program: &str, arguments: impl IntoIterator<Item = &'a str>) -> Ended {
    Running::start(program, arguments).wait()
}

fn temporary() -> File {
    tempfile::tempfile().expect("a temporary file")
}

/// A handle that shares its offset with `file`: everything printed is appended.
fn clone(file: &File) -> File {
    file.try_clone().expect("a second handle")
}

fn contents(file: &File) -> String {
    // Opened anew, so that reading does not move the offset that the program writes at.
    use std::os::fd::AsRawFd;
    let mut own = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("an open file can be opened again");
    let mut bytes = Vec::new();
    own.read_to_end(&mut bytes).expect("a temporary file can be read");
    String::from_utf8_lossy(&bytes).into_owned()
}
