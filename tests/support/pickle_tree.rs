//! The builder that keeps everything: an arena of plain values, for tests and for looking at odd files.
//!
//! Sharing is kept (a container referred to twice is one node), so the tree takes no more memory
//! than the file gives reason to; writing it out as JSON expands it, and is bounded for that.

#![allow(dead_code, unreachable_pub)] // every test takes what it needs

use std::fmt::Write as _;

use oomscope::base::ids::to_u32;
use oomscope::base::intern::Symbols;
use oomscope::snapshot::pickle::{self, Builder, ErrorKind, Kind, NodeKind, PickleError, Value};

const TUPLE: NodeKind = 0;
const LIST: NodeKind = 1;
const DICT: NodeKind = 2;
const BYTES: NodeKind = 3;
const WIDE: NodeKind = 4;
const FLOAT: NodeKind = 5;

/// A pickle's content.
#[derive(Debug, Default)]
pub struct Tree {
    symbols: Symbols,
    containers: Vec<Vec<Value>>,
    /// Which containers are part of others: they may not grow any more, so that none contains itself.
    is_closed: Vec<bool>,
    empty_tuple: Option<Value>,
    bytes: Vec<Vec<u8>>,
    floats: Vec<f64>,
    root: Option<Value>,
}

impl Tree {
    /// Reads the pickle at the start of `bytes`.
    pub fn read(bytes: &[u8]) -> Result<Self, PickleError> {
        let mut tree = Self::default();
        let pickle = pickle::read(bytes, &mut tree, &|_| ())?;
        tree.root = Some(pickle.root);
        Ok(tree)
    }

    /// The content as JSON that keeps Python's types apart: a tuple is `{"tuple": [...]}`, bytes are
    /// `{"bytes": "hex"}`, a dict is `{"dict": [[key, value], ...]}` in its own order, a float is
    /// `{"float": "hex of its bits"}`, and an integer is its decimal digits.
    ///
    /// `None` when it would be longer than `limit` bytes, or nests deeper than 1000.
    pub fn to_json(&self, limit: usize) -> Option<String> {
        let mut out = String::new();
        self.write(self.root?, &mut out, limit, 0)?;
        Some(out)
    }

    fn write(&self, value: Value, out: &mut String, limit: usize, depth: usize) -> Option<()> {
        if out.len() > limit || depth > 1000 {
            return None;
        }
        match value.kind() {
            Kind::None => out.push_str("null"),
            Kind::Bool(b) => out.push_str(if b { "true" } else { "false" }),
            Kind::Int(n) => write!(out, "{n}").ok()?,
            Kind::Text(id) => out.push_str(&serde_json::to_string(self.symbols.get(id)).ok()?),
            Kind::EmptyList => out.push_str("[]"),
            Kind::EmptyDict => out.push_str(r#"{"dict":[]}"#),
            Kind::Node(kind, index) => {
                let index = index as usize;
                match kind {
                    FLOAT => {
                        let bits = self.floats.get(index)?.to_bits();
                        write!(out, r#"{{"float":"{bits:016x}"}}"#).ok()?;
                    }
                    BYTES => {
                        out.push_str(r#"{"bytes":""#);
                        for byte in self.bytes.get(index)? {
                            write!(out, "{byte:02x}").ok()?;
                        }
                        out.push_str("\"}");
                    }
                    WIDE => out.push_str(&decimal(self.bytes.get(index)?)),
                    _ => {
                        let items = self.containers.get(index)?;
                        let (open, step, close) = match kind {
                            TUPLE => (r#"{"tuple":["#, 1, "]}"),
                            LIST => ("[", 1, "]"),
                            _ => (r#"{"dict":["#, 2, "]}"),
                        };
                        out.push_str(open);
                        for (i, chunk) in items.chunks(step).enumerate() {
                            if i > 0 {
                                out.push(',');
                            }
                            if step == 2 {
                                out.push('[');
                            }
                            for (j, item) in chunk.iter().enumerate() {
                                if j > 0 {
                                    out.push(',');
                                }
                                self.write(*item, out, limit, depth + 1)?;
                            }
                            if step == 2 {
                                out.push(']');
                            }
                        }
                        out.push_str(close);
                    }
                }
            }
        }
        Some(())
    }

    fn container(&mut self, kind: NodeKind, items: &[Value]) -> Value {
        self.containers.push(items.to_vec());
        self.is_closed.push(false);
        self.close(items);
        Value::node(kind, to_u32(self.containers.len() - 1))
    }

    fn close(&mut self, items: &[Value]) {
        for item in items {
            if let Kind::Node(TUPLE | LIST | DICT, index) = item.kind()
                && let Some(is_closed) = self.is_closed.get_mut(index as usize)
            {
                *is_closed = true;
            }
        }
    }

    fn extend(&mut self, kind: NodeKind, so_far: Value, items: &[Value]) -> Result<Value, ErrorKind> {
        match so_far.kind() {
            Kind::EmptyList if kind == LIST => Ok(self.container(kind, items)),
            Kind::EmptyDict if kind == DICT => Ok(self.container(kind, items)),
            Kind::Node(k, index) if k == kind => {
                self.close(items);
                match (self.containers.get_mut(index as usize), self.is_closed.get(index as usize)) {
                    (Some(container), Some(false)) => container.extend_from_slice(items),
                    _ => return Err(ErrorKind::Recursive),
                }
                Ok(so_far)
            }
            _ if kind == LIST => Err(ErrorKind::NotAContainer("list")),
            _ => Err(ErrorKind::NotAContainer("dict")),
        }
    }
}

impl Builder for Tree {
    fn text(&mut self, text: &str) -> Value {
        Value::text(self.symbols.intern(text))
    }

    fn bytes(&mut self, bytes: &[u8]) -> Value {
        self.bytes.push(bytes.to_vec());
        Value::node(BYTES, to_u32(self.bytes.len() - 1))
    }

    fn wide_int(&mut self, bytes: &[u8]) -> Value {
        self.bytes.push(bytes.to_vec());
        Value::node(WIDE, to_u32(self.bytes.len() - 1))
    }

    fn float(&mut self, value: f64) -> Value {
        self.floats.push(value);
        Value::node(FLOAT, to_u32(self.floats.len() - 1))
    }

    fn tuple(&mut self, items: &[Value]) -> Result<Value, ErrorKind> {
        if let (Some(known), []) = (self.empty_tuple, items) {
            return Ok(known);
        }
        let tuple = self.container(TUPLE, items);
        if items.is_empty() {
            self.empty_tuple = Some(tuple);
        }
        Ok(tuple)
    }

    fn list(&mut self, so_far: Value, items: &[Value], _: bool) -> Result<Value, ErrorKind> {
        self.extend(LIST, so_far, items)
    }

    fn dict(&mut self, so_far: Value, pairs: &[Value], _: bool) -> Result<Value, ErrorKind> {
        self.extend(DICT, so_far, pairs)
    }

    fn text_of(&self, value: Value) -> Option<&str> {
        match value.kind() {
            Kind::Text(id) => Some(self.symbols.get(id)),
            _ => None,
        }
    }
}

/// The decimal digits of little-endian two's complement `bytes` of any width.
pub fn decimal(bytes: &[u8]) -> String {
    const BILLION: u64 = 1_000_000_000;
    let negative = bytes.last().is_some_and(|top| top & 0x80 != 0);
    let mut limbs: Vec<u32> = bytes
        .chunks(4)
        .map(|chunk| {
            let mut limb = if negative { [0xff; 4] } else { [0; 4] };
            limb.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            u32::from_le_bytes(limb)
        })
        .collect();
    if negative {
        let mut carry = true;
        for limb in &mut limbs {
            (*limb, carry) = (!*limb).overflowing_add(u32::from(carry));
        }
    }
    // Nine digits a pass, the last ones first.
    let mut groups = Vec::new();
    while limbs.last().is_some() {
        let mut rest = 0;
        for limb in limbs.iter_mut().rev() {
            let part = rest << 32 | u64::from(*limb);
            *limb = u32::try_from(part / BILLION).unwrap_or(u32::MAX);
            rest = part % BILLION;
        }
        groups.push(rest);
        while limbs.last() == Some(&0) {
            limbs.pop();
        }
    }
    let mut out = if negative { "-".to_owned() } else { String::new() };
    let mut groups = groups.iter().rev().skip_while(|group| **group == 0);
    let _ = write!(out, "{}", groups.next().unwrap_or(&0));
    for group in groups {
        let _ = write!(out, "{group:09}");
    }
    out
}
