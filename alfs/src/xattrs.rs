//! Extended attributes: all of a file are in one node.
//!
//! ```text
//!   32 [name bytes, 1][value bytes, 2][name …][value …] … [0]
//! ```

use crate::block::{Bytes, HEADER_BYTES, Kind, zeroes};
use crate::operation::{Inode, NAME_BYTES_MAX, Refusal, Reply, XattrHow};
use crate::volume::{Step, Volume};
use openftl_parts::target::SegmentTarget;

/// Bytes of a value, at most, whatever else the file has.
const VALUE_BYTES_MAX: usize = 1 << 16;

const FIXED: usize = 3;

/// Attributes, in the order in which they were set.
type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

fn parse(bytes: &Bytes) -> Option<Attributes> {
    let mut rest = &bytes[HEADER_BYTES..];
    let mut found = Vec::new();
    while let [name_bytes, low, high, behind @ ..] = rest {
        if *name_bytes == 0 {
            break;
        }
        let (name, behind) = behind.split_at_checked(usize::from(*name_bytes))?;
        let (value, behind) = behind.split_at_checked(usize::from(u16::from_le_bytes([*low, *high])))?;
        found.push((name.to_vec(), value.to_vec()));
        rest = behind;
    }
    Some(found)
}

fn bytes_of(attributes: &Attributes) -> usize {
    attributes.iter().map(|(name, value)| FIXED + name.len() + value.len()).sum()
}

fn put(bytes: &mut Bytes, attributes: &Attributes) {
    bytes[HEADER_BYTES..].fill(0);
    let mut at = HEADER_BYTES;
    for (name, value) in attributes {
        bytes[at] = name.len() as u8;
        bytes[at + 1..at + FIXED].copy_from_slice(&(value.len() as u16).to_le_bytes());
        at += FIXED;
        for piece in [name, value] {
            bytes[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
    }
}

impl<T: SegmentTarget> Volume<T> {
    fn xattrs(&mut self, inode: Inode) -> Step<Attributes> {
        let node = self.pin_inode(inode)?.xattrs.get();
        if node == 0 {
            return Ok(Vec::new());
        }
        self.pin(node, &[Kind::Xattrs])?;
        Ok(parse(&self.cache.node(node).bytes).ok_or(Refusal::Device)?)
    }

    fn expect_xattr_name(name: &[u8]) -> Step<()> {
        match name.len() {
            0 => Err(Refusal::Invalid.into()),
            length if length > NAME_BYTES_MAX => Err(Refusal::NameTooLong.into()),
            _ if name.contains(&0) => Err(Refusal::Invalid.into()),
            _ => Ok(()),
        }
    }

    pub(crate) fn get_xattr(&mut self, inode: Inode, name: &[u8]) -> Step<Reply> {
        let attributes = self.xattrs(inode)?;
        let found = attributes.into_iter().find(|(other, _)| other == name);
        Ok(Reply::Bytes(found.ok_or(Refusal::NoXattr)?.1))
    }

    pub(crate) fn list_xattrs(&mut self, inode: Inode) -> Step<Reply> {
        let mut names = Vec::new();
        for (name, _) in self.xattrs(inode)? {
            names.extend_from_slice(&name);
            names.push(0);
        }
        Ok(Reply::Bytes(names))
    }

    pub(crate) fn set_xattr(&mut self, inode: Inode, name: &[u8], value: &[u8], how: XattrHow) -> Step<Reply> {
        Self::expect_xattr_name(name)?;
        let mut attributes = self.xattrs(inode)?;
        let there = attributes.iter_mut().find(|(other, _)| other == name);
        match (there, how) {
            (Some(_), XattrHow::Create) => return Err(Refusal::Exists.into()),
            (None, XattrHow::Replace) => return Err(Refusal::NoXattr.into()),
            _ if value.len() > VALUE_BYTES_MAX => return Err(Refusal::XattrTooBig.into()),
            (Some((_, old)), _) => *old = value.to_vec(),
            (None, _) => attributes.push((name.to_vec(), value.to_vec())),
        }
        // One byte ends them.
        if bytes_of(&attributes) >= size_of::<Bytes>() - HEADER_BYTES {
            return Err(Refusal::NoRoom.into());
        }
        self.expect_nodes()?;
        let mut node = self.fields(inode).xattrs.get();
        self.expect_change(u64::from(node == 0))?;
        if node == 0 {
            node = self.new_node(Kind::Xattrs, zeroes());
            self.fields_mut(inode).xattrs = node.into();
            self.count_blocks(inode.0, 1);
        }
        put(&mut self.cache.node_mut(node).bytes, &attributes);
        self.xattrs_changed(inode);
        Ok(Reply::Done)
    }

    pub(crate) fn remove_xattr(&mut self, inode: Inode, name: &[u8]) -> Step<Reply> {
        Self::expect_xattr_name(name)?;
        let mut attributes = self.xattrs(inode)?;
        let at = attributes.iter().position(|(other, _)| other == name).ok_or(Refusal::NoXattr)?;
        self.expect_change(0)?;
        attributes.remove(at);
        let node = self.fields(inode).xattrs.get();
        if attributes.is_empty() {
            self.free_node(node);
            self.fields_mut(inode).xattrs = 0.into();
            self.count_blocks(inode.0, -1);
        } else {
            put(&mut self.cache.node_mut(node).bytes, &attributes);
        }
        self.xattrs_changed(inode);
        Ok(Reply::Done)
    }

    fn xattrs_changed(&mut self, inode: Inode) {
        let now = self.time_of_day;
        self.fields_mut(inode).changed = now.into();
        self.changed();
    }
}
