//! Reads a page of `oomscope report` as its script does, from docs/report-data.md alone.
#![allow(dead_code, unreachable_pub)] // every test takes what it needs

use std::collections::{BTreeMap, HashMap};
use std::io::Read as _;

use serde_json::Value;

/// A page, taken apart.
pub struct Page {
    pub html: String,
    pub analysis: Value,
    /// What is said of each device.
    pub rows: Vec<Value>,
    pub devices: Vec<Recording>,
}

impl Page {
    pub fn read(html: String) -> Self {
        let (analysis, rows) = (super::program::with_details(block(&html, "analysis")), block(&html, "pages"));
        let parts = html.split("<script type=\"text/plain\" class=\"data\" data-page=\"").skip(1);
        let devices = parts
            .map(|part| {
                let (_, rest) = part.split_once("\">").unwrap();
                Recording::read(&base64(rest.split_once("</script>").unwrap().0))
            })
            .collect();
        Self { analysis, rows: rows.as_array().unwrap().clone(), devices, html }
    }

    /// The JSON of element `id`.
    pub fn block(&self, id: &str) -> Value {
        block(&self.html, id)
    }

    /// The analysis of the device of row `at`.
    pub fn analysis_of(&self, at: usize) -> &Value {
        let row = &self.rows[at];
        let snapshot = row["snapshot"].as_u64().unwrap() as usize;
        let devices = self.analysis["snapshots"][snapshot]["devices"].as_array().unwrap();
        devices.iter().find(|device| device["device"] == row["device"]).unwrap()
    }
}

fn block(html: &str, id: &str) -> Value {
    let begin = format!("<script type=\"application/json\" id=\"{id}\">");
    let (_, rest) = html.split_once(&begin).unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

fn base64(text: &str) -> Vec<u8> {
    let value = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => panic!("{c} is no base64"),
    };
    let mut bytes = Vec::new();
    for four in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = four.iter().fold(0_u32, |bits, c| bits << 6 | u32::from(value(*c)));
        let bits = bits << (6 * (4 - four.len()));
        bytes.extend(&bits.to_be_bytes()[1..four.len()]);
    }
    bytes
}

/// The data of one device.
pub struct Recording {
    pub header: Value,
    columns: HashMap<String, Vec<u8>>,
    pub allocations: Vec<Allocation>,
    segments: Vec<Segment>,
    pub strings: Vec<String>,
}

#[derive(Clone, Copy)]
pub struct Allocation {
    pub start: u64,
    pub requested: Option<u64>,
    pub done: Option<u64>,
    pub address: u64,
    pub bytes: u64,
    pub requested_bytes: u64,
    pub kind: usize,
}

#[derive(Clone, Copy)]
struct Segment {
    start: u64,
    end: Option<u64>,
    address: u64,
    units: u64,
    /// Stream, pool and flags.
    of: (u64, u64, u64),
}

/// What one moment comes to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct State {
    pub allocated: u64,
    pub pending: u64,
    pub reserved: u64,
    pub requested: u64,
    pub blocks: u64,
    pub pending_blocks: u64,
    pub free_blocks: u64,
    pub segments: u64,
    pub largest_free_block: u64,
    pub releasable: u64,
}

fn varints(bytes: &[u8]) -> Vec<u64> {
    let (mut values, mut value, mut shift) = (Vec::new(), 0_u64, 0);
    for byte in bytes {
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            values.push(value);
            (value, shift) = (0, 0);
        }
    }
    assert_eq!(shift, 0, "a column ends with a number");
    values
}

/// Sums of differences, which are in zigzag.
fn changes(values: &[u64]) -> Vec<u64> {
    let mut last = 0_u64;
    let sum = |value: &u64| {
        let change = (value >> 1) as i64 ^ -((value & 1) as i64);
        last = last.wrapping_add_signed(change);
        last
    };
    values.iter().map(sum).collect()
}

impl Recording {
    fn read(deflated: &[u8]) -> Self {
        let mut blob = Vec::new();
        flate2::read::DeflateDecoder::new(deflated).read_to_end(&mut blob).unwrap();
        let length = u32::from_le_bytes(blob[..4].try_into().unwrap()) as usize;
        let header: Value = serde_json::from_slice(&blob[4..4 + length]).unwrap();
        let mut at = 4 + length;
        let mut columns = HashMap::new();
        for column in header["columns"].as_array().unwrap() {
            let bytes = column[1].as_u64().unwrap() as usize;
            columns.insert(column[0].as_str().unwrap().to_owned(), blob[at..at + bytes].to_vec());
            at += bytes;
        }
        assert_eq!(at, blob.len(), "columns fill the data");
        let strings = serde_json::from_slice(&columns["strings"]).unwrap();
        let mut recording = Self { header, columns, allocations: Vec::new(), segments: Vec::new(), strings };
        recording.read_allocations();
        recording.read_segments();
        recording
    }

    pub fn number(&self, key: &str) -> u64 {
        self.header[key].as_u64().unwrap()
    }

    /// A column of plain numbers.
    pub fn column(&self, name: &str) -> Vec<u64> {
        varints(&self.columns[name])
    }

    fn read_allocations(&mut self) {
        let [req, done, kind, slack] = ["req", "done", "kind", "slack"].map(|name| self.column(name));
        let (requested, unit) = (self.column("krequested"), self.number("unit"));
        let address = changes(&self.column("addr"));
        let pending = self.number("pending_at_start") as usize;
        let mut start = 0;
        for (at, more) in self.column("start").into_iter().enumerate() {
            start += more;
            let freed = (req[at] > 0 || at < pending).then_some(start + req[at]);
            let requested_bytes = requested[kind[at] as usize];
            self.allocations.push(Allocation {
                start,
                requested: freed,
                done: (done[at] > 0).then(|| freed.unwrap() + done[at] - 1),
                address: address[at],
                bytes: (requested_bytes.div_ceil(unit) + slack[at]) * unit,
                requested_bytes,
                kind: kind[at] as usize,
            });
        }
        assert_eq!(self.allocations.len() as u64, self.number("allocations"));
    }

    fn read_segments(&mut self) {
        let [start, end, units] = ["sstart", "send", "ssize"].map(|name| self.column(name));
        let [stream, pool, flags] = ["sstream", "spool", "sflags"].map(|name| self.column(name));
        let address = changes(&self.column("saddr"));
        for at in 0..start.len() {
            self.segments.push(Segment {
                start: start[at],
                end: Some(end[at]).filter(|end| *end > 0),
                address: address[at],
                units: units[at],
                of: (stream[at], pool[at], flags[at]),
            });
        }
        assert_eq!(self.segments.len() as u64, self.number("segments"));
    }

    /// What is in use at `moment`: whether it waits for another stream, and what it is.
    fn in_use(&self, moment: u64) -> impl Iterator<Item = (bool, &Allocation)> {
        let all = self.allocations.iter();
        let live = all.filter(move |one| one.start <= moment && one.done.is_none_or(|done| done > moment));
        live.map(move |one| (one.requested.is_some_and(|at| at <= moment), one))
    }

    /// Bytes that the program held at `moment`, by what it was for.
    pub fn by_category(&self, moment: u64) -> BTreeMap<String, u64> {
        let category = self.column("kcategory");
        let mut sums = BTreeMap::new();
        for (is_pending, one) in self.in_use(moment) {
            if !is_pending {
                let word = &self.header["categories"][category[one.kind] as usize];
                *sums.entry(word.as_str().unwrap().to_owned()).or_default() += one.bytes;
            }
        }
        sums
    }

    /// The same by line and category: bytes and blocks.
    pub fn by_line(&self, moment: u64) -> BTreeMap<(u64, u64), (u64, u64)> {
        let (line, category) = (self.column("kline"), self.column("kcategory"));
        let mut sums: BTreeMap<(u64, u64), (u64, u64)> = BTreeMap::new();
        for (is_pending, one) in self.in_use(moment) {
            if !is_pending {
                let sum = sums.entry((line[one.kind], category[one.kind])).or_default();
                *sum = (sum.0 + one.bytes, sum.1 + 1);
            }
        }
        sums
    }

    /// Number of blocks at the end whose stack has no frame of Python.
    pub fn live_without_frames(&self) -> usize {
        let (node, parent) = (self.column("knode"), self.column("nparent"));
        let (frame, origin) = (self.column("nframe"), self.column("forigin"));
        let has_frame = |mut at: usize| loop {
            match at {
                0 => break false,
                _ if origin[frame[at] as usize - 1] < 3 => break true,
                _ => at -= parent[at] as usize,
            }
        };
        let live = self.in_use(self.number("entries")).filter(|(is_pending, _)| !is_pending);
        live.filter(|(_, one)| !has_frame(node[one.kind] as usize)).count()
    }

    /// The segments at `moment`: neighbours in one expandable segment joined.
    fn segments_at(&self, moment: u64) -> Vec<Segment> {
        const EXPANDABLE: u64 = 2;
        let mut there: Vec<Segment> = self.segments.clone();
        there.retain(|one| one.start <= moment && one.end.is_none_or(|end| end > moment));
        there.sort_by_key(|one| one.address);
        let mut joined: Vec<Segment> = Vec::new();
        for one in there {
            match joined.last_mut() {
                Some(last)
                    if one.of.2 & EXPANDABLE > 0 && last.of == one.of && last.address + last.units == one.address =>
                {
                    last.units += one.units;
                }
                _ => joined.push(one),
            }
        }
        joined
    }

    /// What `moment` comes to.
    pub fn state(&self, moment: u64) -> State {
        let unit = self.number("unit");
        let mut state = State::default();
        let mut used: Vec<(u64, u64)> = Vec::new();
        for (is_pending, one) in self.in_use(moment) {
            let of = if is_pending {
                (&mut state.pending, &mut state.pending_blocks)
            } else {
                (&mut state.allocated, &mut state.blocks)
            };
            *of.0 += one.bytes;
            *of.1 += 1;
            state.requested += one.requested_bytes;
            used.push((one.address, one.bytes / unit));
        }
        used.sort_unstable();
        let mut used = used.into_iter().peekable();
        for segment in self.segments_at(moment) {
            state.segments += 1;
            state.reserved += segment.units * unit;
            let end = segment.address + segment.units;
            let (mut at, mut blocks, mut holes) = (segment.address, 0, Vec::new());
            while let Some((address, units)) = used.next_if(|(address, _)| *address < end) {
                if address > at {
                    holes.push((at, address - at));
                }
                at = address + units;
                blocks += 1;
            }
            if at < end {
                holes.push((at, end - at));
            }
            for (address, units) in &holes {
                state.free_blocks += 1;
                state.largest_free_block = state.largest_free_block.max(units * unit);
                let offset = (address - segment.address) * unit;
                let is_alone = blocks + holes.len() == 1;
                state.releasable += self.releasable(segment.of, offset, units * unit, is_alone);
            }
        }
        assert!(used.next().is_none(), "every block lies in a segment");
        state
    }

    /// Bytes of a free block that `empty_cache()` would give back.
    fn releasable(&self, of: (u64, u64, u64), offset: u64, bytes: u64, is_alone: bool) -> u64 {
        let (_, pool, flags) = of;
        if self.header["pools"][pool as usize] != "0:0" {
            return 0;
        }
        if flags & 2 == 0 {
            return if is_alone { bytes } else { 0 };
        }
        let granule = self.header["granules"][usize::from(flags & 1 == 0)].as_u64().unwrap();
        let first = offset.div_ceil(granule);
        ((offset + bytes) / granule).saturating_sub(first) * granule
    }
}

/// `bytes` as base64.
pub fn base64_of(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = (0..3).fold(0_u32, |bits, at| bits << 8 | u32::from(*three.get(at).unwrap_or(&0)));
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place) & 63) as usize] as char;
            text.push(if place > three.len() { '=' } else { letter });
        }
    }
    text
}
