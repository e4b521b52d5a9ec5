//! `oomscope explain` gives the right answer to what people really paste: the messages of
//! `fixtures/logs/messages.toml`, each with its answer; and to logs of many ranks.

use crate::support::fixtures;

use oomscope::explain::message;
use oomscope::explain::table::{FORMS, Form, Role};
use oomscope::explain::{ExplainReport, ExplainedFailure, explain};
use oomscope::output::document::{Style, markdown, terminal};
use toml::de::DeTable;

fn report(text: &str) -> ExplainReport {
    let log = message::read(text.as_bytes()).unwrap();
    explain(&log, "log").unwrap_or_else(|| panic!("nothing found: {text}"))
}

fn page(report: &ExplainReport, top: usize) -> String {
    let style = Style { width: 100, unicode: true, colour: false };
    terminal(&oomscope::output::report::explain(report, top).in_full(), style)
}

fn value<'t>(message: &'t DeTable, key: &str) -> Option<&'t str> {
    message.get(key).and_then(|value| value.get_ref().as_str())
}

/// The text, or that of the log that it names.
fn text_of(message: &DeTable) -> String {
    let log =
        || std::fs::read_to_string(fixtures::directory().join("logs").join(value(message, "log").unwrap())).unwrap();
    value(message, "text").map_or_else(log, str::to_owned)
}

/// Calls `with` with each message.
fn each_message<T>(with: impl Fn(&DeTable) -> T) -> Vec<T> {
    let text = std::fs::read_to_string(fixtures::directory().join("logs/messages.toml")).unwrap();
    let table = DeTable::parse(&text).unwrap();
    let messages = table.get_ref()["message"].get_ref().as_array().unwrap();
    messages.iter().map(|message| with(message.get_ref().as_table().unwrap())).collect()
}

/// `text` as it is, with other numbers, with other units, as the log of a rank, without every third line, and its end.
fn variants(text: &str) -> [String; 6] {
    let numbers = text.replace(|c: char| c.is_ascii_digit(), "7");
    let lines: Vec<&str> = text.lines().collect();
    let kept = lines.iter().enumerate().filter(|(index, _)| index % 3 != 1).map(|(_, line)| format!("{line}\n"));
    [
        text.to_owned(),
        numbers,
        text.replace("GiB", "MiB").replace(" free", " busy"),
        lines.iter().map(|line| format!("[rank3]: {line}\n")).collect(),
        kept.collect(),
        lines[lines.len() / 2..].join("\n"),
    ]
}

/// The answers to the variants of each message, with its source.
pub(super) fn answers() -> Vec<(String, serde_json::Value)> {
    each_message(|message| {
        let answer = |text: String| explain(&message::read(text.as_bytes()).unwrap(), "log");
        let answers = variants(&text_of(message)).map(answer);
        (value(message, "from").unwrap().to_owned(), serde_json::to_value(answers).unwrap())
    })
}

/// What is wrong with the answer to `expected`.
fn faults(expected: &DeTable) -> Vec<String> {
    let of = |key: &str| value(expected, key);
    let list = |key: &str| {
        let all = expected.get(key).and_then(|value| value.get_ref().as_array());
        all.into_iter().flatten().map(|word| word.get_ref().as_str().unwrap()).collect::<Vec<_>>()
    };
    let text = &text_of(expected);
    if of("kind") == Some("none") {
        let log = message::read(text.as_bytes()).unwrap();
        return explain(&log, "log")
            .map(|report| format!("found {}", report.failures[0].message))
            .into_iter()
            .collect();
    }
    let report = report(text);
    let count =
        |key: &str| expected.get(key).and_then(|value| value.get_ref().as_integer()?.as_str().parse::<u64>().ok());
    if report.failures.len() as u64 != count("messages").unwrap_or(1) {
        return vec![format!("{} messages found", report.failures.len())];
    }
    let failure = &report.failures[0];
    let mut faults = Vec::new();
    for (key, found) in [
        ("kind", Some(failure.kind)),
        ("verdict", Some(failure.verdict.word())),
        ("confidence", Some(failure.confidence.word())),
        ("system", failure.system),
        ("version", failure.torch_version.as_deref()),
    ] {
        if of(key).is_some() && of(key) != found {
            faults.push(format!("{key} is {found:?}, not {}", of(key).unwrap()));
        }
    }
    if count("requested") != count("requested").and(failure.requested_bytes) {
        faults.push(format!("requested is {:?}", failure.requested_bytes));
    }
    // What the message says itself is no answer.
    let answer = ExplainedFailure { message: String::new(), ..failure.clone() };
    let answer = serde_json::to_string(&answer).unwrap();
    let page = page(&report, 3).split_whitespace().collect::<Vec<_>>().join(" ");
    for word in list("says") {
        if !answer.contains(word) {
            faults.push(format!("does not say {word}"));
        }
    }
    for word in list("never") {
        if answer.contains(word) || page.contains(word) {
            faults.push(format!("says {word}"));
        }
    }
    faults
}

#[test]
fn messages_as_people_paste_them_get_the_right_answer() {
    let wrong = each_message(|message| match faults(message) {
        faults if faults.is_empty() => None,
        faults => Some(format!("{}: {}", value(message, "from").unwrap(), faults.join(", "))),
    });
    assert!(wrong.len() >= 300);
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_system_is_documented() {
    let docs = std::fs::read_to_string("docs/explain.md").unwrap();
    let is_shown = |form: &&Form| matches!(form.role, Role::Message | Role::Note | Role::Echo) && !form.is_allocator();
    for system in FORMS.iter().filter(is_shown) {
        let is_there = docs.lines().any(|row| row.starts_with("| ") && row.contains(&system.name));
        assert!(is_there, "{}", system.name);
    }
}

const NUMBERS: &str = "has a total capacity of 79.10 GiB of which 20.00 MiB is free. Including non-PyTorch memory, this \
process has 79.07 GiB memory in use. Of the allocated memory 77.00 GiB is allocated by PyTorch, and 1.20 GiB is \
reserved by PyTorch but unallocated.";

/// A log of ranks that fail alike, and of one that does not, of a trainer.
fn ranks() -> String {
    let traceback = |rank: u32, line: u32, requested: &str| {
        let lines = [
            "Traceback (most recent call last):".to_owned(),
            "  File \"/app/train.py\", line 40, in main".to_owned(),
            "    trainer.train()".to_owned(),
            format!("  File \"/usr/lib/python3.11/site-packages/transformers/models/x.py\", line {line}, in forward"),
            "    attn = torch.softmax(scores, dim=-1)".to_owned(),
            "           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^".to_owned(),
            "  File \"/usr/lib/python3.11/site-packages/torch/nn/functional.py\", line 9, in softmax".to_owned(),
            "    raise ValueError(\"No available memory for the cache blocks. \"".to_owned(),
            format!("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {requested}. GPU {rank} {NUMBERS}"),
        ];
        lines.map(|line| format!("[rank{rank}]: {line}\n")).concat()
    };
    let alike: String = [0, 1, 2, 5].map(|rank| traceback(rank, 88, "2.00 GiB")).concat();
    alike + &traceback(4, 90, "2.00 GiB") + &traceback(3, 88, "3.00 GiB")
}

#[test]
fn the_requesting_line_has_its_code_and_then_the_users() {
    let failure = &report(&ranks()).failures[0];
    let culprit = failure.culprit.as_ref().unwrap();
    assert!(culprit.file.ends_with("models/x.py"), "{culprit:?}");
    assert_eq!(failure.culprit_code.as_deref(), Some("attn = torch.softmax(scores, dim=-1)"));
    let caller = failure.called_from.as_ref().unwrap();
    assert_eq!((caller.file.as_str(), caller.line), ("/app/train.py", 40));
    assert_eq!(failure.called_from_code.as_deref(), Some("trainer.train()"));
    let page = page(&report(&ranks()), 3);
    assert!(page.contains("\n  88 │ attn = torch.softmax(scores, dim=-1)  ← 2 GiB\n"), "{page}");
    assert!(page.contains("\n  called from /app/train.py:40 main\n"), "{page}");
}

#[test]
fn ranks_with_the_same_failure_are_one_block() {
    let report = report(&ranks());
    let same: Vec<_> = report.failures.iter().map(|f| (f.rank.unwrap(), f.same_as)).collect();
    let first = Some(report.failures[0].line);
    assert_eq!(same, [(0, None), (1, first), (2, first), (5, first), (4, None), (3, None)]);
    let whole = page(&report, 3);
    assert!(whole.starts_with("out of memory on GPUs 0-2, 5: "), "{whole}");
    assert!(whole.contains("\n  ranks 0-2, 5, line 9 of 54, 4 times, "), "{whole}");
    let row = |rank: &str| whole.lines().find(|line| line.contains(rank)).unwrap().to_owned();
    assert!(row("rank 4").contains("x.py:90") && row("rank 3").contains("3 GiB"), "{whole}");
    let table = markdown(&oomscope::output::report::explain(&report, 0));
    assert!(table.contains("| rank 3 | 3 GiB |"), "{table}");
}

#[test]
fn code_is_read_from_tracebacks_of_rich_and_of_ipython() {
    let rich = "╭──── Traceback (most recent call last) ────╮\n\
                │ /app/train.py:864 in step          │\n\
                │   863 │   x = 1                    │\n\
                │ ❱ 864 │   loss = model(batch)      │\n\
                ╰────────────────────────────────────╯\n\
                RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB.\n";
    let failure = &report(rich).failures[0];
    assert_eq!(failure.culprit_code.as_deref(), Some("loss = model(batch)"));
    let ipython = "Traceback (most recent call last)\nCell In[3], line 2\n      1 x = 1\n----> 2 y = f(x)\n\
                   OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n";
    let failure = &report(ipython).failures[0];
    assert_eq!(failure.culprit_code.as_deref(), Some("y = f(x)"));
}
