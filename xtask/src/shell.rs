//! Other programs: finding them, running them, reading what they print.

use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

/// The cargo that started us, in the workspace's root.
pub fn cargo<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root()).stdin(Stdio::null());
    command
}

/// The workspace's root folder.
pub fn root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}

/// What cargo says about the workspace.
pub fn metadata() -> Result<serde_json::Value, String> {
    let text = output(&mut cargo(["metadata", "--no-deps", "--format-version", "1"]))?;
    serde_json::from_str(&text).map_err(|error| format!("cargo metadata: {error}"))
}

/// Where cargo puts what it builds.
pub fn target_directory() -> Result<PathBuf, String> {
    match metadata()?["target_directory"].as_str() {
        Some(directory) => Ok(PathBuf::from(directory)),
        None => Err("cargo metadata names no target_directory".to_owned()),
    }
}

/// Runs `command` with its output shown.
pub fn run(command: &mut Command) -> Result<(), String> {
    println!("$ {}", line(command));
    let status = command.status().map_err(|error| format!("`{}` does not start: {error}", line(command)))?;
    if status.success() { Ok(()) } else { Err(format!("`{}` ended with {status}", line(command))) }
}

/// Runs `command` and returns what it printed; its errors are shown.
pub fn output(command: &mut Command) -> Result<String, String> {
    let (text, status) = output_and_status(command)?;
    if status.success() { Ok(text) } else { Err(format!("`{}` ended with {status}", line(command))) }
}

/// Runs `command` and returns what it printed and how it ended; its errors are shown.
pub fn output_and_status(command: &mut Command) -> Result<(String, ExitStatus), String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("`{}` does not start: {error}", line(command)))?;
    let text = String::from_utf8(output.stdout).map_err(|_| format!("`{}` printed what is no UTF-8", line(command)))?;
    Ok((text, output.status))
}

/// Whether `command` runs and succeeds; prints nothing.
pub fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Where the program `name` is, looking also where only root's PATH leads.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Whether we are root: whether we own our own process's folder as user 0.
pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

/// The command as one would type it.
pub fn line(command: &Command) -> String {
    let program = PathBuf::from(command.get_program());
    let program = program.file_name().unwrap_or(command.get_program()).to_string_lossy().into_owned();
    let words = command.get_args().map(|word| quote(&word.to_string_lossy()));
    std::iter::once(program).chain(words).collect::<Vec<_>>().join(" ")
}

fn quote(word: &str) -> String {
    if !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || "'\"$&;|<>?*()".contains(c)) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let mut command = Command::new("/usr/bin/fio");
        command.args(["--uri=nbd+unix:///?socket=/s", "it's"]);
        assert_eq!(line(&command), r"fio '--uri=nbd+unix:///?socket=/s' 'it'\''s'");
    }
}
