//! Paths: absolute, with one "/" between names.

use crate::FileError;

/// The longest path in bytes.
pub const PATH_BYTES_MAX: usize = 1024;

/// `path` as the drive keeps it: one "/" between names, none at the end.
///
/// # Errors
/// If it is empty, relative, too long, or has "." or ".." in it.
pub fn normal(path: &str) -> Result<String, FileError> {
    let invalid = |reason: &str| FileError::Invalid(format!("path {path:?} {reason}"));
    if path.len() > PATH_BYTES_MAX {
        // Not all of it: whoever sent it may have sent megabytes.
        let begin = &path[..path.floor_char_boundary(64)];
        let bytes = path.len();
        return Err(FileError::Invalid(format!(
            "path {begin:?}… of {bytes} bytes is longer than {PATH_BYTES_MAX} bytes"
        )));
    }
    if !path.starts_with('/') {
        return Err(invalid("does not begin with \"/\": a drive has no working folder"));
    }
    let mut normal = String::with_capacity(path.len());
    for name in path.split('/').filter(|name| !name.is_empty()) {
        if name == "." || name == ".." {
            return Err(invalid("has \".\" or \"..\" in it, which mean nothing on a drive"));
        }
        normal.push('/');
        normal.push_str(name);
    }
    if normal.is_empty() {
        normal.push('/');
    }
    Ok(normal)
}

/// The folder that a normal path is in; "/" is in none.
#[must_use]
pub fn folder(path: &str) -> Option<&str> {
    match path.rfind('/') {
        Some(0) if path.len() == 1 => None,
        Some(0) => Some("/"),
        Some(at) => Some(&path[..at]),
        None => None,
    }
}

/// What files that are for the same have in common: `*.sst` of `/db/000123.sst`, `MANIFEST` of `/db/MANIFEST-000004`.
#[must_use]
pub fn likeness(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name.rsplit_once('.') {
        Some((_, ending)) if ending.bytes().all(|byte| byte.is_ascii_alphabetic()) => format!("*.{ending}"),
        _ => name.split(['-', '.']).next().unwrap_or(name).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_for_the_same_are_alike() {
        let check = |path: &str, expected: &str| assert_eq!(likeness(path), expected);
        check("/db/000123.sst", "*.sst");
        check("/db/MANIFEST-000004", "MANIFEST");
        check("/db/OPTIONS-000007.dbtmp", "*.dbtmp");
        check("/db/CURRENT", "CURRENT");
        check("/db/LOG.old.1763823857", "LOG");
    }

    #[test]
    fn paths_have_one_form() {
        let check = |path: &str, expected: &str| assert_eq!(normal(path).unwrap(), expected);
        check("/db/000001.sst", "/db/000001.sst");
        check("//db///000001.sst/", "/db/000001.sst");
        check("/", "/");
        check("//", "/");
    }

    #[test]
    fn what_is_no_path_is_named() {
        let check = |path: &str, part: &str| {
            let error = normal(path).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        check("db", "\"db\" does not begin with");
        check("", "does not begin with");
        check("/db/../x", "\"..\"");
        check(&format!("/{}", "x".repeat(1024)), "longer than 1024");
        let long = normal(&"\u{1}".repeat(1 << 20)).unwrap_err().to_string();
        assert!(long.len() < 1024, "what is said of a long path is short: {} bytes", long.len());
    }

    #[test]
    fn every_path_but_the_first_is_in_a_folder() {
        assert_eq!(folder("/a/b"), Some("/a"));
        assert_eq!(folder("/a"), Some("/"));
        assert_eq!(folder("/"), None);
    }
}
