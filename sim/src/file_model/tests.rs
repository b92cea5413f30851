use super::*;
use crate::portrait::{Portrait, with_bytes};
use openftl_alfs::XattrHow;

/// A model with a clock that goes on by a second with each operation.
struct Host {
    model: FileModel,
    clock: FileTime,
}

fn at(seconds: i64) -> FileTime {
    FileTime { seconds, nanoseconds: 7 }
}

const FOLDER: NewFile = NewFile { kind: FileKind::Directory, mode: 0o755, uid: 1, gid: 2, device: 0 };
const FILE: NewFile = NewFile { kind: FileKind::Regular, mode: 0o644, uid: 1, gid: 2, device: 0 };

impl Host {
    fn new() -> Host {
        Host { model: FileModel::new(0o755, at(1000)), clock: at(1000) }
    }

    fn ask(&mut self, operation: &Operation<'_>) -> Result<Reply, Refusal> {
        self.clock.seconds += 1;
        let ticket = self.model.ticket();
        let reply = self.model.attempt(Time::ZERO, self.clock, ticket, operation).expect("the model never waits");
        reply.map(|reply| with_bytes(&mut self.model, reply))
    }

    fn attributes(&mut self, operation: &Operation<'_>) -> Attributes {
        match self.ask(operation) {
            Ok(Reply::Attributes(attributes)) => attributes,
            other => panic!("{operation:?}: {other:?}"),
        }
    }

    fn of(&mut self, inode: Inode) -> Attributes {
        self.attributes(&Operation::Attributes { inode })
    }

    fn make(&mut self, parent: Inode, name: &str, file: NewFile) -> Inode {
        self.attributes(&Operation::Make { parent, name: name.as_bytes(), file }).inode
    }

    fn rename(&mut self, from: (Inode, &str), to: (Inode, &str), how: RenameHow) -> Result<Reply, Refusal> {
        let (from_name, to_name) = (from.1.as_bytes(), to.1.as_bytes());
        self.ask(&Operation::Rename { from: from.0, from_name, to: to.0, to_name, how })
    }

    fn unlink(&mut self, parent: Inode, name: &str) -> Result<Reply, Refusal> {
        self.ask(&Operation::Unlink { parent, name: name.as_bytes() })
    }

    fn portrait(&mut self) -> Portrait {
        Portrait::of(&mut |operation| self.ask(operation)).expect("the model agrees with itself")
    }
}

const ROOT: Inode = Inode::ROOT;

#[test]
fn folders_count_the_folders_in_them() {
    let mut host = Host::new();
    let (a, b) = (host.make(ROOT, "a", FOLDER), host.make(ROOT, "b", FOLDER));
    let inner = host.make(a, "inner", FOLDER);
    let links = |host: &mut Host| [ROOT, a, b].map(|inode| host.of(inode).links);
    assert_eq!(links(&mut host), [4, 3, 2]);
    assert_eq!(host.rename((a, "inner"), (b, "inner"), RenameHow::NoReplace), Ok(Reply::Done));
    assert_eq!(links(&mut host), [4, 2, 3]);
    assert_eq!(host.attributes(&Operation::Lookup { parent: inner, name: b".." }).inode, b);
    assert_eq!(host.rename((ROOT, "a"), (b, "inner"), RenameHow::Replace), Ok(Reply::Done));
    assert_eq!([host.of(ROOT).links, host.of(b).links], [3, 3]);
    assert_eq!(host.ask(&Operation::Attributes { inode: inner }), Err(Refusal::Stale));
}

#[test]
fn renames_are_refused_as_linux_refuses_them() {
    let mut host = Host::new();
    let (a, f) = (host.make(ROOT, "a", FOLDER), host.make(ROOT, "f", FILE));
    let inner = host.make(a, "inner", FOLDER);
    let (replace, exchange) = (RenameHow::Replace, RenameHow::Exchange);
    assert_eq!(host.rename((ROOT, "a"), (inner, "x"), replace), Err(Refusal::Invalid));
    assert_eq!(host.rename((ROOT, "a"), (a, "inner"), exchange), Err(Refusal::Invalid));
    assert_eq!(host.rename((a, "inner"), (ROOT, "a"), exchange), Err(Refusal::Invalid));
    assert_eq!(host.rename((ROOT, "f"), (ROOT, "a"), replace), Err(Refusal::IsADirectory));
    assert_eq!(host.rename((ROOT, "a"), (ROOT, "f"), replace), Err(Refusal::NotADirectory));
    assert_eq!(host.rename((a, "inner"), (ROOT, "a"), replace), Err(Refusal::NotEmpty));
    assert_eq!(host.rename((ROOT, "f"), (ROOT, "g"), exchange), Err(Refusal::NotFound));
    assert_eq!(host.rename((ROOT, "f"), (ROOT, "a"), RenameHow::NoReplace), Err(Refusal::Exists));
    assert_eq!(host.rename((f, "f"), (ROOT, "a"), replace), Err(Refusal::NotADirectory));
    assert_eq!(host.rename((Inode(99), "f"), (ROOT, "a"), replace), Err(Refusal::Stale));
    assert_eq!(host.rename((ROOT, "f"), (a, "inner"), exchange), Ok(Reply::Done));
    assert_eq!([host.of(ROOT).links, host.of(a).links], [4, 2]);
    assert_eq!(host.attributes(&Operation::Lookup { parent: a, name: b"inner" }).inode, f);
    assert_eq!(host.attributes(&Operation::Lookup { parent: inner, name: b".." }).inode, ROOT);
}

#[test]
fn a_rename_onto_another_name_of_the_file_changes_nothing() {
    let mut host = Host::new();
    let file = host.make(ROOT, "a", FILE);
    _ = host.attributes(&Operation::Link { inode: file, parent: ROOT, name: b"b" });
    let before = host.portrait();
    for how in [RenameHow::Replace, RenameHow::Exchange] {
        assert_eq!(host.rename((ROOT, "a"), (ROOT, "b"), how), Ok(Reply::Done));
        assert_eq!(host.portrait(), before);
    }
    assert_eq!(host.rename((ROOT, "a"), (ROOT, "b"), RenameHow::NoReplace), Err(Refusal::Exists));
}

#[test]
fn times_are_those_of_linux() {
    let mut host = Host::new();
    let file = host.make(ROOT, "a", FILE);
    let made = host.clock;
    let root = host.of(ROOT);
    assert_eq!((root.modified, root.changed, root.born), (made, made, at(1000)));
    _ = host.ask(&Operation::Read { inode: file, offset: 0, bytes: 1 });
    let read = host.clock;
    _ = host.ask(&Operation::Read { inode: file, offset: 0, bytes: 1 });
    assert_eq!(host.of(file).accessed, read, "it is after the last change, and not a day old");
    _ = host.ask(&Operation::Write { inode: file, offset: 0, data: b"x" });
    let written = host.clock;
    let changes = Changes { mode: Some(0o600), ..Changes::default() };
    let attributes = host.attributes(&Operation::SetAttributes { inode: file, changes });
    assert_eq!((attributes.modified, attributes.changed), (written, host.clock));
    let changes = Changes { size: Some(9), changed: Some(at(5)), ..Changes::default() };
    let attributes = host.attributes(&Operation::SetAttributes { inode: file, changes });
    assert_eq!((attributes.modified, attributes.changed), (host.clock, at(5)));
    host.clock.seconds += ACCESSED_SECONDS;
    _ = host.ask(&Operation::Read { inode: file, offset: 0, bytes: 1 });
    assert_eq!(host.of(file).accessed.seconds, host.clock.seconds - 1);
}

#[test]
fn a_file_without_a_name_stays_while_it_is_held() {
    let mut host = Host::new();
    let file = host.make(ROOT, "a", FILE);
    host.model.hold(file, 2);
    assert_eq!(host.unlink(ROOT, "a"), Ok(Reply::Done));
    assert_eq!(host.of(file).links, 0);
    assert_eq!(host.ask(&Operation::Link { inode: file, parent: ROOT, name: b"b" }), Err(Refusal::NotFound));
    assert!(host.model.release(file, 1));
    assert_eq!(host.ask(&Operation::Write { inode: file, offset: 0, data: b"x" }), Ok(Reply::Done));
    assert!(host.model.after_power_cut().file(file).is_none());
    assert!(!host.model.release(file, 2), "there is one");
    assert_eq!(host.ask(&Operation::Attributes { inode: file }), Err(Refusal::Stale));
}

#[test]
fn groups_are_inherited_and_links_have_an_end() {
    let mut host = Host::new();
    let folder = host.make(ROOT, "a", NewFile { mode: 0o2755, gid: 77, ..FOLDER });
    let inner = host.make(folder, "inner", FOLDER);
    let file = host.make(folder, "file", FILE);
    assert_eq!((host.of(inner).gid, host.of(inner).mode), (77, 0o2755));
    assert_eq!((host.of(file).gid, host.of(file).mode), (77, 0o644));
    host.model.limits.links = 3;
    assert_eq!(host.ask(&Operation::Make { parent: folder, name: b"b", file: FOLDER }), Err(Refusal::TooManyLinks));
    for (name, expected) in [(b"1", true), (b"2", true), (b"3", false)] {
        let linked = host.ask(&Operation::Link { inode: file, parent: ROOT, name });
        assert_eq!(linked.is_ok(), expected, "{linked:?}");
    }
    let link = Operation::Link { inode: inner, parent: ROOT, name: b"x" };
    assert!(host.model.refusals(&link).contains(&Refusal::NotPermitted));
}

#[test]
fn extended_attributes_are_created_replaced_and_too_many() {
    let mut host = Host::new();
    let inode = host.make(ROOT, "a", FILE);
    let mut set = |name: &[u8], bytes: usize, how| {
        host.ask(&Operation::SetXattr { inode, name, value: &vec![1; bytes], how }).map(|_| ())
    };
    assert_eq!(set(b"user.a", 10, XattrHow::Replace), Err(Refusal::NoXattr));
    assert_eq!(set(b"user.a", 10, XattrHow::Create), Ok(()));
    assert_eq!(set(b"user.a", 10, XattrHow::Create), Err(Refusal::Exists));
    assert_eq!(set(b"user.b", 4090, XattrHow::Set), Err(Refusal::NoRoom));
    assert_eq!(set(b"user.b", 4091, XattrHow::Set), Err(Refusal::XattrTooBig));
    assert_eq!(set(b"user.b", 0, XattrHow::Set), Ok(()));
    assert_eq!(host.ask(&Operation::ListXattr { inode }), Ok(Reply::Bytes(b"user.a\0user.b\0".to_vec())));
    assert_eq!(host.ask(&Operation::RemoveXattr { inode, name: b"user.c" }), Err(Refusal::NoXattr));
}

#[test]
fn listings_go_on_where_they_ended() {
    let mut host = Host::new();
    for name in ["c", "a", "b"] {
        host.make(ROOT, name, FILE);
    }
    let (mut after, mut names) = (0, Vec::new());
    while let Ok(Reply::Entries(entries)) =
        host.ask(&Operation::ReadDirectory { inode: ROOT, after, entries: 2, with_attributes: true })
    {
        let Some(last) = entries.last() else { break };
        after = last.cookie;
        names.extend(entries.iter().map(|entry| (entry.name.clone(), entry.attributes.is_some())));
        _ = host.unlink(ROOT, "c");
    }
    let expected = [(".", false), ("..", false), ("a", true), ("b", true)];
    assert_eq!(names, expected.map(|(name, has)| (name.as_bytes().to_vec(), has)));
}

/// Each of these shows in a portrait, and what is no difference does not.
#[test]
fn a_portrait_shows_every_difference() {
    let mut host = Host::new();
    let folder = host.make(ROOT, "a", FOLDER);
    let file = host.make(folder, "f", FILE);
    _ = host.ask(&Operation::Write { inode: file, offset: 1 << 32, data: b"far behind" });
    _ = host.ask(&Operation::Symlink { parent: ROOT, name: b"l", target: b"a/f", uid: 0, gid: 0 });
    let before = host.portrait();
    let model = host.model.clone();
    let restoring = Changes { modified: Some(at(1)), changed: Some(at(2)), ..Changes::default() };
    let mut differs = |operation: &Operation<'_>| {
        // The same times, or they would be the difference.
        let mut portraits = [false, true].map(|is_done| {
            host.model = model.clone();
            if is_done {
                _ = host.ask(operation).expect("it is possible");
            }
            for inode in [ROOT, folder, file] {
                _ = host.ask(&Operation::SetAttributes { inode, changes: restoring });
            }
            host.portrait()
        });
        portraits.sort_by_key(|portrait| portrait.hash);
        let is_different = portraits[0].hash != portraits[1].hash;
        assert_eq!(portraits[0].listing != portraits[1].listing, is_different);
        is_different
    };
    assert!(differs(&Operation::Write { inode: file, offset: (1 << 32) + 3, data: b"x" }));
    assert!(differs(&Operation::Write { inode: file, offset: 77, data: b"x" }));
    assert!(differs(&Operation::SetXattr { inode: folder, name: b"user.x", value: b"", how: XattrHow::Set }));
    assert!(differs(&Operation::SetAttributes { inode: file, changes: Changes { uid: Some(9), ..restoring } }));
    assert!(differs(&Operation::SetAttributes { inode: file, changes: Changes { size: Some(1 << 33), ..restoring } }));
    assert!(differs(&Operation::Link { inode: file, parent: ROOT, name: b"g" }));
    assert!(differs(&Operation::Unlink { parent: ROOT, name: b"l" }));
    let how = RenameHow::Replace;
    assert!(differs(&Operation::Rename { from: folder, from_name: b"f", to: ROOT, to_name: b"f", how }));
    assert!(!differs(&Operation::Read { inode: file, offset: 0, bytes: 1 }));
    assert!(
        !differs(&Operation::Write { inode: file, offset: 77, data: &[0] }),
        "only that there is a block of zeroes"
    );
    host.model = model;
    assert_eq!(host.portrait(), before);
}
