//! The plugin that puts files of RocksDB on table drives: where it is, and how to have a program load it.

use std::path::{Path, PathBuf};

/// Names the folder with RocksDB's programs and the plugin.
pub const VARIABLE: &str = "OPENFTL_ROCKSDB";

/// The file of the plugin.
pub const PLUGIN: &str = "libopenftl_rocksdb.so";

/// The folders that `cargo xtask rocksdb` makes where cargo builds: with a RocksDB of its own, and with Debian's.
const FOLDERS: [&str; 2] = ["rocksdb", "rocksdb-debian"];

/// The words of a shell that start a program of RocksDB with the plugin, and a line on where the plugin is if it is not known.
pub fn loading(program: &str) -> (String, Option<&'static str>) {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    let built = || {
        let here = std::env::current_exe().ok()?;
        here.ancestors()
            .skip(1)
            .flat_map(|folder| FOLDERS.map(|name| folder.join(name)))
            .find(|folder| has_plugin(folder))
    };
    loading_from(named.filter(|folder| has_plugin(folder)).or_else(built).as_deref(), program)
}

fn has_plugin(folder: &Path) -> bool {
    folder.join(PLUGIN).is_file()
}

fn loading_from(folder: Option<&Path>, program: &str) -> (String, Option<&'static str>) {
    let Some(folder) = folder else {
        let note = "`cargo xtask rocksdb` in a checkout of OpenFTL builds the plugin and says where it is";
        return (format!("env LD_PRELOAD=/path/to/{PLUGIN} {program}"), Some(note));
    };
    let places = [program.to_owned(), format!("tools/{program}")].map(|name| folder.join(name));
    let program = places.iter().find(|file| file.is_file()).map_or(program.into(), |file| file.display().to_string());
    (format!("env LD_PRELOAD={} {program}", folder.join(PLUGIN).display()), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_that_was_built_is_named_by_its_path_and_so_are_programs_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().display();
        let line = || loading_from(Some(folder.path()), "ldb");
        assert_eq!(line(), (format!("env LD_PRELOAD={place}/{PLUGIN} ldb"), None));
        std::fs::create_dir(folder.path().join("tools")).unwrap();
        std::fs::write(folder.path().join("tools/ldb"), "").unwrap();
        assert_eq!(line(), (format!("env LD_PRELOAD={place}/{PLUGIN} {place}/tools/ldb"), None));
    }

    #[test]
    fn a_plugin_that_is_nowhere_says_how_to_build_one() {
        let (line, note) = loading_from(None, "db_bench");
        assert_eq!(line, format!("env LD_PRELOAD=/path/to/{PLUGIN} db_bench"));
        assert!(note.unwrap().contains("cargo xtask rocksdb"));
    }
}
