//! Everything that is known about messages of a lack of memory, as data: one row a form.
//!
//! Tables in TOML go in; rows with a form's pattern, the meaning of its figures, the reason that it gives and advice
//! come out. `like = "NAME"` copies the keys that a row lacks from `[like.NAME]`; a sentence that is a key of `[text]`
//! is replaced by that text. This room does not know logs ([`crate::explain::message`] finds the forms there) or
//! reports.

mod amount;
mod numbers;

pub(super) use amount::is_number_char;
pub use amount::{Pattern, PrintedAmount, Side};
pub use numbers::{PrintedNumbers, fill};

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Table;

use crate::stacks::engines::Engine;
use crate::stacks::frames::FrameReport;

/// A form of messages.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Form {
    /// The kind of memory that ran out, as JSON names it.
    pub kind: String,
    /// The system that prints the message.
    pub name: String,
    /// A heading: what happened.
    pub title: String,
    /// The printed text, in one or more wordings. The message starts where the pattern does.
    pub text: Vec<Pattern>,
    pub role: Role,
    /// The line adds to the last message of this system, which contains these words, and makes it one of this form.
    /// Empty for a message that stands alone.
    pub continues: String,
    /// The innermost frame of the traceback contains this word, in its file, function or code. Such a row takes
    /// precedence over one without. Empty for a message that any frame may precede.
    pub in_frame: String,
    /// How many of the next lines belong to the message.
    pub below: u64,
    /// Words that a line of the message must have for it to be one.
    pub needs: String,
    /// Amounts of memory: the patterns of each, and its meaning at the end.
    pub figures: BTreeMap<String, Vec<String>>,
    /// Other numbers: the patterns of each.
    pub numbers: BTreeMap<String, Vec<Pattern>>,
    /// Clauses that say why memory ran out. The first whose numbers are all in the message is the reason.
    pub why: Vec<String>,
    /// Advice, the most useful first. A line whose numbers are not all in the message is left out.
    #[serde(rename = "do")]
    pub advice: Vec<String>,
    /// Text to copy for the advice: the first whose numbers are all in the message.
    pub copy: Vec<String>,
    /// How to confirm the reason, where the message leaves it open.
    pub settled_by: Option<String>,
    /// A snapshot of PyTorch's allocator would show more.
    pub is_recordable: bool,
}

/// The evidence in a line of a form.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// That memory ran out.
    #[default]
    Message,
    /// The same, if no other message of the system says it.
    Note,
    /// That a process was killed, which another message about host memory explains better.
    Echo,
    /// Nothing alone: it has numbers for the messages of the system.
    Context,
    /// Another failure, which people take for a lack of memory.
    OtherFailure,
    /// Words about a lack of memory, of a system that no other row has.
    Unknown,
}

impl Form {
    /// Whether it only adds to a message of its system.
    pub fn is_note(&self) -> bool {
        matches!(self.role, Role::Note | Role::Echo)
    }

    /// The byte at which a message of this form starts in `text`.
    pub fn find(&self, text: &str) -> Option<usize> {
        self.text.iter().find_map(|pattern| pattern.find(text))
    }

    /// The first wording of this form that `text` has.
    pub fn wording(&self, text: &str) -> Option<&Pattern> {
        self.text.iter().find(|pattern| pattern.find(text).is_some())
    }

    /// True for messages of PyTorch's allocator of device memory.
    pub fn is_allocator(&self) -> bool {
        self.kind == "allocator"
    }

    /// The names of the figures, with their patterns and meanings.
    pub fn figures(&self) -> impl Iterator<Item = (&str, &[String], &str)> {
        self.figures.iter().filter_map(|(name, texts)| {
            let (meaning, patterns) = texts.split_last()?;
            Some((name.as_str(), patterns, meaning.as_str()))
        })
    }
}

/// A file of rows.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tables {
    #[serde(default)]
    text: BTreeMap<String, String>,
    #[serde(default)]
    like: BTreeMap<String, Table>,
    form: Vec<Table>,
}

impl Tables {
    fn parse<Row: DeserializeOwned>(file: &str) -> Result<Vec<Row>, toml::de::Error> {
        let Self { text, like, form: rows } = toml::from_str(file)?;
        let rows = rows.into_iter().map(|mut row: Table| {
            while let Some(base) = row.remove("like") {
                let base = base.as_str().and_then(|name| like.get(name));
                for (key, value) in base.ok_or_else(|| serde::de::Error::custom("unknown `like`"))? {
                    row.entry(key).or_insert_with(|| value.clone());
                }
            }
            row.iter_mut().for_each(|(_, value)| replace_shared(value, &text));
            row.try_into()
        });
        rows.collect()
    }
}

/// Replaces keys of `[text]` in `value`.
fn replace_shared(value: &mut toml::Value, text: &BTreeMap<String, String>) {
    match value {
        toml::Value::String(key) => *key = text.get(key).unwrap_or(key).clone(),
        toml::Value::Array(values) => values.iter_mut().for_each(|value| replace_shared(value, text)),
        _ => {}
    }
}

/// Reads a file of the program.
#[expect(clippy::expect_used, reason = "the files are part of the program, and every test reads them")]
fn rows<Row: DeserializeOwned>(file: &str) -> Vec<Row> {
    Tables::parse(file).expect("a valid table")
}

/// Every form, in the order in which they are tried.
pub static FORMS: LazyLock<Vec<Form>> = LazyLock::new(|| {
    [
        include_str!("pytorch.toml"),
        include_str!("frameworks.toml"),
        include_str!("serving.toml"),
        include_str!("device.toml"),
        include_str!("host.toml"),
        include_str!("other.toml"),
    ]
    .into_iter()
    .flat_map(rows)
    .collect()
});

static CONCLUSIONS: LazyLock<Vec<Form>> = LazyLock::new(|| rows(include_str!("conclusions.toml")));

/// The words of a conclusion from a message of PyTorch's allocator.
#[expect(clippy::expect_used, reason = "the rows are part of the program, and a test looks every name up")]
pub fn conclusion_row(name: &str) -> &'static Form {
    CONCLUSIONS.iter().find(|row| row.name == name).expect("a row for every conclusion")
}

/// Code known by its frames in a traceback, or by words that it prints.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Place {
    /// The engine whose files these are, by its name.
    pub engine: String,
    /// Parts of the paths of its files, or of more files than an engine's.
    pub files: Vec<String>,
    /// Its functions; empty for all.
    pub functions: Vec<String>,
    /// Words of its log and its command line.
    pub words: Vec<String>,
    /// The command that starts it without a GPU, and tries what makes room.
    pub dry_run: Option<String>,
    /// The advice for a full device.
    #[serde(rename = "do")]
    pub advice: String,
}

/// Every place; the first that a traceback or a log shows counts.
pub static PLACES: LazyLock<Vec<Place>> = LazyLock::new(|| rows(include_str!("places.toml")));

/// The first place of the table that `frames` show; without frames, the one that the log names. A place without frames
/// of its own, such as a kind of machine, needs none.
pub(super) fn find_place(frames: &[FrameReport], named: Option<&'static Place>) -> Option<&'static Place> {
    let named = named.filter(|place| frames.is_empty() || place.files.is_empty() && place.engine.is_empty());
    named.or_else(|| PLACES.iter().find(|place| frames.iter().any(|frame| is_in(frame, place))))
}

fn is_in(frame: &FrameReport, place: &Place) -> bool {
    let file = frame.file.replace('\\', "/");
    let is_engine = Engine::of_file(&file).is_some_and(|engine| engine.name == place.engine);
    (is_engine || place.files.iter().any(|folder| file.contains(folder)))
        && (place.functions.is_empty() || place.functions.contains(&frame.name))
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Vendor {
    /// The word before "out of memory" in PyTorch's messages; empty for any other.
    pub backend: String,
    /// Pairs of CUDA's term and this vendor's, replaced in order.
    terms: Vec<(String, String)>,
    /// The allocator is that of `c10/cuda`, whose wording shows PyTorch's release.
    pub is_cuda_allocator: bool,
    /// A remark on `expandable_segments`.
    pub expandable: Option<String>,
    /// The largest request that the driver serves, in bytes, and the advice for larger ones.
    pub largest_request: Option<(u64, String)>,
    /// Advice for requests that something other than a full device refused.
    pub refusals: Vec<String>,
}

static VENDORS: LazyLock<Vec<Vendor>> = LazyLock::new(|| rows(include_str!("vendors.toml")));

/// The vendor of `backend`; an unknown one gets the last row, which any name matches.
#[expect(clippy::expect_used, reason = "the last row of the table matches every name, as its test shows")]
pub fn vendor(backend: &str) -> &'static Vendor {
    let mut rows = VENDORS.iter();
    rows.find(|vendor| vendor.backend == backend || vendor.backend.is_empty()).expect("a row for other vendors")
}

impl Vendor {
    /// Advice for a request of `bytes` that something other than a full device refused.
    pub fn refusals(&self, bytes: u64) -> impl Iterator<Item = String> {
        let largest = self.largest_request.iter().filter(move |(largest, _)| bytes > *largest);
        largest.map(|(_, advice)| advice).chain(&self.refusals).cloned()
    }

    /// Replaces CUDA's terms in `text` by this vendor's.
    pub fn translate(&self, text: String) -> String {
        self.terms.iter().fold(text, |text, (cuda, term)| text.replace(cuda, term))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_complete_and_matches_its_own_words_first() {
        let rows: Vec<_> = FORMS.iter().collect();
        assert!(rows.len() > 100, "{}", rows.len());
        for row in &rows {
            let parts = [&row.kind, &row.name, &row.title];
            let is_shown = (row.role == Role::Message || row.is_note()) && !row.is_allocator();
            assert!(!is_shown || parts.iter().all(|part| !part.is_empty()), "{row:?}");
            assert!(!is_shown || !row.advice.is_empty() && !row.why.is_empty(), "{row:?}");
            assert!(row.why.iter().all(|why| !why.ends_with('.')), "{row:?}");
            for pattern in &row.text {
                let text = pattern.0.replace('…', " x ").replace("{}", "7");
                let text = text.trim_start_matches('^').trim_end_matches('$');
                assert!(row.find(text).is_some(), "{text}");
                assert!(pattern.longest_literal().len() > 2, "{text}");
                let first = rows.iter().find(|other| other.in_frame == row.in_frame && other.find(text).is_some());
                assert_eq!(first, Some(row), "{text}: another row is found first");
            }
            for (name, patterns, meaning) in row.figures() {
                assert!(!patterns.is_empty() && patterns.iter().all(|text| is_pattern(text)), "{name} of {row:?}");
                assert!(!is_pattern(meaning), "{name} of {row:?}");
            }
            assert!(row.numbers.values().flatten().all(|pattern| is_pattern(&pattern.0)), "{row:?}");
            let names: Vec<&String> = row.figures.keys().chain(row.numbers.keys()).collect();
            for template in row.why.iter().chain(&row.advice).chain(&row.copy) {
                let used = template.split('{').skip(1).map(|piece| piece.split_once('}').unwrap().0);
                for name in used.flat_map(|used| used.trim_start_matches(['=', '?', '!']).split(['-', '/'])) {
                    assert!(names.iter().any(|known| *known == name), "{name} in {template:?} is no number");
                }
            }
        }
    }

    #[test]
    fn a_row_takes_what_it_lacks_from_its_base() {
        let file = "[text]\nA = 'a'\n[like.X]\nname = 'x'\ndo = ['A', 'b']\n[like.Y]\nlike = 'X'\ntitle = 'y'\n\
                    [[form]]\nlike = 'Y'\nname = 'own'\n";
        let [row] = &Tables::parse::<Form>(file).unwrap()[..] else { panic!("one row") };
        assert_eq!((row.name.as_str(), row.title.as_str()), ("own", "y"));
        assert_eq!(row.advice, ["a", "b"]);
        assert!(Tables::parse::<Form>("[like]\n[[form]]\nlike = 'Z'\n").is_err());
        assert!(Tables::parse::<Form>("[like]\n[[form]]\nmeans = 'typo'\n").is_err());
    }

    /// Whether it has one number.
    fn is_pattern(text: &str) -> bool {
        text.matches("{}").count() == 1
    }

    fn frame(file: &str, name: &str) -> FrameReport {
        FrameReport::new(file.to_owned(), 1, name.to_owned())
    }

    #[test]
    fn the_options_of_the_engine_lead_by_what_it_does() {
        let vllm = "/opt/site-packages/vllm/v1/worker/gpu_model_runner.py";
        let llama = "/opt/site-packages/vllm/model_executor/models/llama.py";
        let zero = "/opt/site-packages/deepspeed/runtime/zero/stage_1_and_2.py";
        for (file, function, option) in [
            (vllm, "load_model", Some("--tensor-parallel-size")),
            (vllm, "_dummy_run", Some("--gpu-memory-utilization")),
            (vllm, "__init__", Some("--gpu-memory-utilization")),
            (llama, "__init__", Some("--tensor-parallel-size")),
            (llama, "forward", Some("--gpu-memory-utilization")),
            ("/sgl/python/sglang/srt/layers/linear.py", "forward", Some("--mem-fraction-static")),
            ("/opt/text_generation_server/server.py", "Prefill", Some("--max-batch-total-tokens")),
            (zero, "initialize_optimizer_states", Some("optimizer's state")),
            ("/opt/torch/optim/adamw.py", "_init_group", Some("8-bit Adam")),
            ("/home/me/vllm/train.py", "main", None),
            ("/app/train.py", "load_model", None),
        ] {
            let place = find_place(&[frame("torch/nn/functional.py", "linear"), frame(file, function)], None);
            match option {
                Some(option) => assert!(place.unwrap().advice.contains(option), "{file} {function}"),
                None => assert_eq!(place, None),
            }
        }
    }

    #[test]
    fn an_engine_that_the_log_names_counts_without_a_traceback() {
        let named = PLACES.iter().find(|place| place.words.iter().any(|word| word == "vllm serve "));
        assert!(find_place(&[], named).unwrap().advice.contains("--gpu-memory-utilization"));
        assert_eq!(find_place(&[frame("/app/train.py", "main")], named), None);
        assert_eq!(find_place(&[], None), None);
    }

    #[test]
    fn terms_of_cuda_are_replaced_for_each_vendor() {
        for (backend, text) in [
            ("CUDA", "nvidia-smi; PYTORCH_CUDA_ALLOC_CONF; torch.cuda"),
            ("HIP", "rocm-smi; PYTORCH_HIP_ALLOC_CONF; torch.cuda"),
            ("XPU", "xpu-smi; PYTORCH_ALLOC_CONF; torch.xpu"),
            ("NPU", "npu-smi info; PYTORCH_NPU_ALLOC_CONF; torch.npu"),
            ("GCU", "the vendor's monitor; PYTORCH_ALLOC_CONF; torch"),
        ] {
            let terms = "nvidia-smi; PYTORCH_CUDA_ALLOC_CONF; torch.cuda".to_owned();
            assert_eq!(vendor(backend).translate(terms), text);
        }
        let snapshot = conclusion_row("capacity").settled_by.clone().unwrap();
        assert!(vendor("XPU").translate(snapshot).contains("torch.xpu.memory_stats()"));
    }
}
