//! Trace entries that are read in one go are those that are read opcode by opcode.

use super::*;

/// A decoder that may refuse all keys, so that the machine reads every dict opcode by opcode.
struct Watched {
    decoder: Decoder,
    accepts_keys: bool,
    /// Number of dicts that were read in one go.
    records: u64,
}

impl Builder for Watched {
    fn text(&mut self, text: &str) -> Value {
        self.decoder.text(text)
    }
    fn bytes(&mut self, bytes: &[u8]) -> Value {
        self.decoder.bytes(bytes)
    }
    fn wide_int(&mut self, bytes: &[u8]) -> Value {
        self.decoder.wide_int(bytes)
    }
    fn float(&mut self, value: f64) -> Value {
        self.decoder.float(value)
    }
    fn tuple(&mut self, items: &[Value]) -> Result<Value, ErrorKind> {
        self.decoder.tuple(items)
    }
    fn list(&mut self, so_far: Value, items: &[Value], may_grow: bool) -> Result<Value, ErrorKind> {
        self.decoder.list(so_far, items, may_grow)
    }
    fn dict(&mut self, so_far: Value, pairs: &[Value], may_grow: bool) -> Result<Value, ErrorKind> {
        self.decoder.dict(so_far, pairs, may_grow)
    }
    fn accept_keys(&mut self, keys: &[Value]) -> Option<Vec<Place>> {
        if self.accepts_keys { self.decoder.accept_keys(keys) } else { None }
    }
    fn record(&mut self, record: &Record) -> Option<Value> {
        let record = self.decoder.record(record);
        self.records += u64::from(record.is_some());
        record
    }
    fn text_of(&self, value: Value) -> Option<&str> {
        self.decoder.text_of(value)
    }
    fn is_shareable(&self, value: Value) -> bool {
        self.decoder.is_shareable(value)
    }
}

/// Everything that the tables hold, or the error.
fn describe(root: Result<pickle::Pickle, pickle::PickleError>, decoder: Decoder) -> String {
    match root {
        Ok(pickle) => decoder.finish(pickle.root).map_or_else(|error| error.to_string(), |read| describe_tables(&read)),
        Err(error) => format!("{error} after {} entries", decoder.entries()),
    }
}

fn describe_tables(snapshot: &Snapshot) -> String {
    let stacks = (0..snapshot.stacks.len()).map(StackId::from_index);
    let frames = stacks.map(|id| {
        let frames = snapshot.stacks.frames(id).iter().map(|id| snapshot.stacks.frame(id));
        frames.map(|f| (snapshot.text(f.file), snapshot.text(f.name), f.line)).collect::<Vec<_>>()
    });
    let Snapshot { entries, traces, segments, blocks, settings, annotations, torch, warnings, .. } = snapshot;
    let tables = format!("{traces:?} {segments:?} {blocks:?} {settings:?} {annotations:?} {torch:?} {warnings:?}");
    format!("{entries:?} {tables} {:?}", frames.collect::<Vec<_>>())
}

/// Reads `bytes` both ways. Returns the number of entries, and of those that were read in one go.
fn assert_same(bytes: &[u8], what: &str) -> [u64; 2] {
    let [one_go, opcodes] = [true, false].map(|accepts_keys| {
        let mut builder = Watched { decoder: Decoder::new(1 << 20), accepts_keys, records: 0 };
        let root = pickle::read(bytes, &mut builder, &|_| ());
        let counts = [builder.decoder.entries(), builder.records];
        (describe(root, builder.decoder), counts)
    });
    assert!(one_go.0 == opcodes.0, "{what}:\n{}\nin place of\n{}", one_go.0, opcodes.0);
    assert_eq!(opcodes.1[1], 0);
    one_go.1
}

/// Reads `bytes` in pieces of the lengths that `random` gives. Returns whether that succeeds, as it does where they are
/// a snapshot and nothing else.
fn assert_same_in_pieces(bytes: &[u8], random: &mut impl FnMut(usize) -> usize, what: &str) -> bool {
    let mut rest = bytes;
    let mut pieces = std::iter::from_fn(|| {
        let bits = random(14);
        let piece = rest.split_off(..rest.len().min(1 + random(1 << bits)))?;
        (!piece.is_empty()).then(|| Ok(piece.to_vec()))
    });
    match (read(bytes, &|_| ()), read_pieces(&mut pieces)) {
        (Ok(undivided), Some(in_pieces)) => {
            assert!(describe_tables(&undivided) == describe_tables(&in_pieces), "{what}");
            true
        }
        (Ok(undivided), None) => {
            let warnings = undivided.warnings.to_vec();
            assert!(warnings.iter().any(|warning| warning.code == Code::TrailingBytes), "{what}: {warnings:?}");
            false
        }
        (Err(_), in_pieces) => {
            assert!(in_pieces.is_none(), "{what}");
            false
        }
    }
}

/// A function that returns a pseudorandom number below its argument.
fn random_numbers() -> impl FnMut(usize) -> usize {
    let mut state = 1u64;
    move |below| {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        usize::try_from(state >> 33).unwrap() % below
    }
}

#[test]
fn text_and_long_strings_may_be_divided_anywhere() {
    let mut random = random_numbers();
    let name = "x".repeat(2 << 20);
    let long = format!("(dp0\nV{name}\np1\nNsS'segments'\n(lp2\nsS'device_traces'\n(lp3\ns.");
    let short = "(dp0\nS'segments'\np1\n(lp2\nsS'device_traces'\np3\n(lp4\n(lp5\nas.";
    assert!(assert_same_in_pieces(long.as_bytes(), &mut random, "long strings"));
    for round in 0..200 {
        assert!(assert_same_in_pieces(short.as_bytes(), &mut |below| random(below.min(7)), &format!("round {round}")));
    }
}

fn fixture(path: &std::path::Path) -> Vec<u8> {
    crate::base::input::Source::open(path).unwrap().to_vec()
}

#[test]
fn every_fixture_reads_the_same_opcode_by_opcode_and_in_pieces() {
    let mut random = random_numbers();
    let mut counts = [0, 0];
    for file in std::fs::read_dir("../../fixtures").unwrap() {
        let path = file.unwrap().path();
        let is_pickle = path.to_string_lossy().ends_with(".pickle.gz");
        if is_pickle {
            let of_file = assert_same(&fixture(&path), &path.to_string_lossy());
            assert!(assert_same_in_pieces(&fixture(&path), &mut random, &path.to_string_lossy()));
            counts = [counts[0] + of_file[0], counts[1] + of_file[1]];
        }
    }
    assert!(counts[1] > counts[0] / 2, "most entries are read in one go: {counts:?}");
}

#[test]
fn damaged_files_read_the_same_opcode_by_opcode_and_in_pieces() {
    let bytes = fixture("../../fixtures/2.12.1-holes-at-oom.pickle.gz".as_ref());
    let mut random = random_numbers();
    let mut counts = [0, 0];
    let mut read_in_pieces = 0;
    for round in 0..1000 {
        let mut damaged = bytes.clone();
        let at = random(bytes.len());
        // Opcodes and operands of other places are more likely to make sense.
        match round % 4 {
            0 => damaged[at] ^= 1 << random(8),
            1 => damaged[at] = bytes[random(bytes.len())],
            2 => drop(damaged.drain(at..(at + 1 + random(4)).min(bytes.len()))),
            _ => {
                let from = random(bytes.len() - 8);
                let inserted = bytes[from..from + 1 + random(8)].to_vec();
                drop(damaged.splice(at..at, inserted));
            }
        }
        let what = format!("round {round}");
        let [entries, records] = assert_same(&damaged, &what);
        read_in_pieces += u64::from(assert_same_in_pieces(&damaged, &mut random, &what));
        counts = [counts[0] + entries, counts[1] + records];
    }
    assert!(read_in_pieces > 100, "{read_in_pieces}");
    assert!(counts[1] > counts[0] / 2, "most entries are read in one go: {counts:?}");
}
