//! Every string is read as each release of PyTorch read it, and refused in the words of the newest (recorded by
//! `tests/oracle/conf.py`).

use std::path::PathBuf;

use oomscope::allocator::conf::{ParsedConf, Reserve, Settings, UnknownKeys, parse};
use oomscope::allocator::releases::NEWEST;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde::Deserialize;
use serde_json::{Value, json};

const RELEASES: [&str; 14] = [
    "2.1.2", "2.2.2", "2.3.1", "2.4.1", "2.5.1", "2.6.0", "2.7.1", "2.8.0", "2.9.1", "2.10.0", "2.11.0", "2.12.1",
    "2.13.0", "2.14.1",
];
const LATEST: &str = "2.15.0";

#[derive(Deserialize)]
struct Recording {
    release: String,
    /// The release whose answers are this one's where it has none of its own.
    like: Option<String>,
    before: Vec<String>,
    answers: Vec<(usize, Value)>,
}

fn read(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/conf").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn recording(release: &str, strings: usize) -> (Recording, Vec<Value>) {
    let recording: Recording = serde_json::from_str(&read(&format!("{release}.json"))).unwrap();
    assert_eq!(recording.release, release);
    let mut answers = match &recording.like {
        Some(other) => self::recording(other, strings).1,
        None => vec![Value::Null; strings],
    };
    for (row, answer) in &recording.answers {
        answers[*row] = answer.clone();
    }
    (recording, answers)
}

fn minor(release: &str) -> u32 {
    release.split('.').nth(1).unwrap().parse().unwrap()
}

/// The settings that differ from the defaults, under the names and in the units of the recording.
fn described(settings: &Settings, minor: u32) -> Value {
    let unlimited = |bytes: u64| if bytes == u64::MAX { json!(-1) } else { json!(bytes) };
    let reserve = settings.expandable_segments_reserve.map(|reserve| match reserve {
        Reserve::Fraction(part) => json!(["fraction", part]),
        // A recorded number of GiB can be too much for 64 bits.
        Reserve::Bytes(bytes) => json!(["bytes", bytes]),
    });
    let all = |settings: &Settings, reserve: Option<Value>| {
        json!({
            "max_split_size": unlimited(settings.max_split_size),
            "max_non_split_rounding": settings.max_non_split_rounding,
            "garbage_collection_threshold": settings.garbage_collection_threshold,
            "expandable_segments": settings.expandable_segments,
            "expandable_segments_reserve": reserve,
            "roundup_power2_divisions": settings.roundup_power2_divisions,
            "large_segment_size": settings.large_segment_size,
            "per_process_memory_fraction": settings.per_process_memory_fraction,
            "throw_on_cudamalloc_oom": settings.throw_on_cudamalloc_oom,
            "release_lock_on_cudamalloc": settings.release_lock_on_cudamalloc,
            "graph_capture_record_stream_reuse": settings.graph_capture_record_stream_reuse,
        })
    };
    let defaults = all(&Settings::default(), None);
    let mut found = all(settings, reserve);
    assert_eq!(settings.one_division_is_exact, minor <= 3);
    assert!(!settings.backend_is_async);
    found.as_object_mut().unwrap().retain(|name, value| defaults[name] != *value);
    found
}

/// The recorded settings with signed bytes made unsigned and GiB made bytes.
fn normal(mut recorded: Value) -> Value {
    if let Some(size) = recorded.get("max_split_size").and_then(Value::as_i64)
        && size < -1
    {
        recorded["max_split_size"] = json!(size.cast_unsigned());
    }
    if let Some(reserve) = recorded.get_mut("expandable_segments_reserve")
        && reserve[0] == "GiB"
    {
        let bytes = reserve[1].as_f64().unwrap() * f64::from(1 << 30);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive, and too much becomes the most"
        )]
        let bytes = bytes as u64;
        *reserve = json!(["bytes", bytes]);
    }
    recorded
}

fn fault(answer: &Value, before: &str, text: &str, minor: u32) -> Option<String> {
    let before = parse(before, &Settings::default(), minor, UnknownKeys::Refuse).unwrap().settings;
    let parsed = parse(text, &before, minor, UnknownKeys::Refuse);
    let told = match (&answer[0], &parsed) {
        // PyTorch reads beyond the end of the tokens here: an error is the only sane answer.
        (Value::String(died), Err(_)) if died == "died" => return None,
        (Value::String(recorded), Err(error)) => {
            let recorded = recorded.replace(": assert: ", ": ");
            let theirs = recorded.split_once(": ").map_or(recorded.as_str(), |(_, words)| words);
            if minor < NEWEST || theirs == error.message() {
                return None;
            }
            error.message().to_owned()
        }
        (Value::Null, Ok(ParsedConf { settings, warnings })) => {
            let settings = described(settings, minor);
            let warnings: Vec<&String> = warnings.iter().filter(|warning| !warning.contains("has no effect")).collect();
            let recorded = normal(answer[1].clone());
            let recorded_warnings = answer.get(2).cloned().unwrap_or_else(|| json!([]));
            // Snapshots show no settings before 2.3.
            if (recorded.is_null() || recorded == settings) && recorded_warnings == json!(warnings) {
                return None;
            }
            format!("{settings} {warnings:?}")
        }
        (_, Ok(ParsedConf { settings, .. })) => described(settings, minor).to_string(),
        (_, Err(error)) => error.to_string(),
    };
    Some(format!("2.{minor} {text:?}\n  PyTorch:  {answer}\n  oomscope: {told}"))
}

#[test]
fn every_string_is_read_as_every_release_reads_it() {
    let strings: Vec<(usize, String)> = serde_json::from_str(&read("strings.json")).unwrap();
    assert!(strings.len() > 300);
    let mut faults = Vec::new();
    for release in RELEASES.into_iter().chain([LATEST]) {
        let (recording, answers) = recording(release, strings.len());
        for ((before, text), answer) in strings.iter().zip(&answers) {
            assert!(!answer.is_null(), "{release} has no answer to {text:?}");
            // Values of options without an effect are not checked, and nobody writes hexadecimal ones.
            if ["pinned_", "_by_class", "0x"].iter().any(|part| text.to_lowercase().contains(part)) {
                continue;
            }
            faults.extend(fault(answer, &recording.before[*before], text, minor(release)));
        }
    }
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}

fn read_by(minor: u32, text: &str, unknown: UnknownKeys) -> Result<ParsedConf, String> {
    parse(text, &Settings::default(), minor, unknown).map_err(|error| error.to_string())
}

#[test]
fn an_error_shows_how_to_mend_the_string() {
    for (minor, text, told) in [
        (
            15,
            "max_split_size:64",
            "Unrecognized key 'max_split_size' in Accelerator allocator config (did you mean \
             max_split_size_mb?)",
        ),
        (
            9,
            "large_segment_size_mb:64",
            "Unrecognized key 'large_segment_size_mb' in Accelerator allocator config (this option \
             exists since PyTorch 2.11)",
        ),
        (9, "no_such:1", "Unrecognized key 'no_such' in Accelerator allocator config."),
        (9, "max_split_size_mb:big", "stoull ('big' is not a number, for max_split_size_mb)"),
        (
            9,
            "expandable_segments=True",
            "Unrecognized key 'expandable_segments=True' in Accelerator allocator config (did you \
             mean expandable_segments?)",
        ),
        (9, "expandable_segments", "Error parsing CachingAllocator settings, expected : (the string ends there)"),
        (
            15,
            "expandable_segments",
            "Index out of bounds in ConfigTokenizer (the string ends where a value should follow)",
        ),
        (15, "roundup_power2_divisions:3", "For roundups, the divisions has to be power of 2"),
    ] {
        assert_eq!(read_by(minor, text, UnknownKeys::Refuse), Err(told.to_owned()));
    }
}

#[test]
fn a_string_that_was_accepted_once_is_not_refused_for_its_keys() {
    for minor in [1, 9, 10, 15] {
        let text = "a_fork's_own:[1:2,3:4],max_split_size_mb:64,another:1";
        let parsed = read_by(minor, text, UnknownKeys::Warn).unwrap();
        assert_eq!(parsed.settings.max_split_size, 64 << 20);
        assert_eq!(parsed.warnings.len(), 2, "{:?}", parsed.warnings);
        assert!(parsed.warnings[0].contains("a_fork's_own"));
    }
    // What the release is may be a guess; the option is not.
    let parsed = read_by(9, "large_segment_size_mb:40", UnknownKeys::Warn).unwrap();
    assert_eq!(parsed.settings.large_segment_size, 40 << 20);
    assert_eq!(parsed.warnings.len(), 1);
}

#[test]
fn the_asynchronous_backend_is_a_setting() {
    let parsed = read_by(15, "backend:cudaMallocAsync", UnknownKeys::Refuse).unwrap();
    assert!(parsed.settings.backend_is_async);
}

proptest! {
    #[test]
    fn no_string_is_too_much(
        text in prop_oneof![
            any::<String>(),
            vec(select(PIECES), 0..20).prop_map(|pieces| pieces.concat()),
        ],
        minor in 0u32..20,
        unknown in select(&[UnknownKeys::Refuse, UnknownKeys::Warn][..]),
    ) {
        if let Err(error) = parse(&text, &Settings::default(), minor, unknown) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}

const PIECES: &[&str] = &[
    ":",
    ",",
    "[",
    "]",
    " ",
    "\t",
    ">",
    "0",
    "1",
    "64",
    "-",
    ".",
    "e",
    "0x",
    "p",
    "G",
    "é",
    "True",
    "max_split_size_mb",
    "large_segment_size_mb",
    "max_non_split_rounding_mb",
    "backend",
    "roundup_power2_divisions:[",
    "garbage_collection_threshold:",
    "expandable_segments:",
    "expandable_segments_reserve:",
    "expandable_segments_reserve_by_class:[",
    "pinned_free",
];
