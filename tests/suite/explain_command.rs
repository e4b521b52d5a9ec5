//! `oomscope explain` as it is typed: its forms, its inputs, its refusals; and that nothing in a log harms it.

use super::explain::{report, worded};
use crate::support::{fixtures, peak_heap, program};
use std::io::{BufReader, Read, Write as _};

use crate::support::program::{file, json_of, refusal, result_of};
use oomscope::explain::message;
use proptest::prelude::*;
use tempfile::TempDir;

#[test]
fn a_log_comes_from_a_file_a_pipe_or_compressed() {
    let log = std::fs::read(fixtures::directory().join("logs/ranks.log")).unwrap();
    let plain = result_of(&["explain", "fixtures/logs/ranks.log"]);
    let piped = program::oomscope(&["explain"]).write_stdin(log.clone()).output().unwrap();
    assert!(piped.status.success() && piped.stderr.is_empty());
    let piped = String::from_utf8(piped.stdout).unwrap();
    assert_eq!(piped.replace("standard input", "fixtures/logs/ranks.log"), plain);
    let directory = TempDir::new().unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&log).unwrap();
    let packed = file(&directory, "ranks.log.gz", &gzip.finish().unwrap());
    assert_eq!(result_of(&["explain", &packed]).replace(&packed, "fixtures/logs/ranks.log"), plain);
}

#[test]
fn the_logs_of_a_job_are_read_together() {
    let directory = TempDir::new().unwrap();
    let message = worded("2.00 GiB", "8.00 GiB", "1.00 GiB", "", "6.90 GiB", "0 bytes");
    for (name, text) in [
        ("attempt_0/0/stderr.log", format!("step 1\n{message}\n")),
        ("attempt_0/1/stderr.log", format!("{message}\n")),
        ("attempt_0/1/stdout.log", "step 1\n".to_owned()),
        ("rank_7.out", "Killed\n".to_owned()),
        ("notes.md", "torch.OutOfMemoryError: CUDA out of memory.\n".to_owned()),
    ] {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let job = directory.path().to_str().unwrap();
    let report = json_of(&["explain", job]);
    let failures = report["failures"].as_array().unwrap();
    let rows: Vec<_> =
        failures.iter().map(|f| (f["file"].as_str().unwrap(), f["rank"].as_u64(), f["line"].as_u64())).collect();
    let expected = [
        ("attempt_0/0/stderr.log", Some(0), Some(2)),
        ("attempt_0/1/stderr.log", Some(1), Some(1)),
        ("rank_7.out", Some(7), Some(1)),
    ];
    assert_eq!(rows, expected);
    let page = result_of(&["explain", job]);
    assert!(page.contains("ranks 0-1, attempt_0/0/stderr.log, line 2"), "{page}");
    assert!(page.contains("rank_7.out line 1"), "{page}");
}

#[test]
fn a_cut_message_draws_what_it_has() {
    let directory = TempDir::new().unwrap();
    let text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of \
                79.10 GiB of which 12.10 GiB is free. Process";
    let page = result_of(&["explain", &file(&directory, "cut.log", text.as_bytes())]);
    assert!(page.contains("12.1 GiB free on the device") && page.contains("67 GiB not in this text"), "{page}");
    let drawn = |glyph: char| page.chars().filter(|c| *c == glyph).count();
    assert!(drawn('·') > 4 * drawn('░'), "{page}");
}

#[test]
fn finding_nothing_takes_one_sentence() {
    let directory = TempDir::new().unwrap();
    let empty = file(&directory, "empty.log", b"step 1 loss 2.3\n");
    let said = refusal(&["explain", &empty]);
    assert!(said.contains("empty.log: no out-of-memory message"), "{said}");
    let text = b"step 1\nRuntimeError: CUDA error: an illegal memory access was encountered\n";
    let said = refusal(&["explain", &file(&directory, "other.log", text)]);
    assert!(said.contains("no out-of-memory message found; line 2 reports another failure: a kernel used"), "{said}");
    assert!(refusal(&["explain", "no-such.log"]).contains("no-such.log"));
    assert!(refusal(&["explain", "src/explain"]).contains("no log in this directory"));
    let unknown = file(&directory, "unknown.log", b"step 1\nfoobar says: out of memory\n");
    let said = refusal(&["explain", &unknown]);
    assert!(said.contains("line 2") && said.contains("foobar says: out of memory"), "{said}");
    assert!(!said.contains("no out-of-memory message"), "{said}");
    let broken = file(&directory, "broken.log.gz", b"\x1f\x8b\x08\x00broken");
    assert!(refusal(&["explain", &broken]).contains("broken.log.gz"));
    let said = refusal(&["explain", &empty, "--output", &empty]);
    assert!(said.contains("overwrite"), "{said}");
}

#[test]
fn the_log_of_an_engine_leads_to_a_start_without_a_gpu() {
    let directory = TempDir::new().unwrap();
    let oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of \
               79.10 GiB of which 1.00 GiB is free.";
    for (start, command) in [
        ("$ vllm serve llama", "oomscope dry-run --gpu h100 --try -- vllm serve DIR"),
        ("$ python train.py", "oomscope run -- python train.py"),
    ] {
        let log = file(&directory, "start.log", format!("{start}\n{oom}\n").as_bytes());
        let page = result_of(&["explain", &log]);
        assert!(page.contains(&format!("next    {command}")), "{page}");
    }
}

/// Terminal sequences, and names that imitate them, do not reach the page.
#[test]
fn nothing_in_a_log_reaches_the_terminal_unescaped() {
    let text = format!(
        "\x1b]0;title\x07\x1b[31mFile \"/app/\u{202e}x\x08.py\", line 1, in f\nRuntimeError: {}",
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0\x07 \u{9b}2J has"
    );
    let directory = TempDir::new().unwrap();
    let log = file(&directory, "log", text.as_bytes());
    for format in ["human", "json"] {
        let page = result_of(&["explain", "--format", format, &log]);
        let acts = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!page.contains(acts), "{page:?}");
    }
}

/// A log of any length takes little memory: here 25 MB of messages that all differ.
#[test]
#[ignore = "slow: .ci/release runs it"]
fn memory_does_not_grow_with_the_log() {
    struct Endless {
        line: Vec<u8>,
        at: usize,
        number: u64,
    }
    impl Read for Endless {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            if self.at == self.line.len() {
                if self.number > 50_000 {
                    return Ok(0);
                }
                self.number += 1;
                let n = self.number;
                self.line = format!(
                    "job-{n}: {}\n",
                    worded(&format!("{n}.00 MiB"), "8.00 GiB", "0 bytes", "", "7.00 GiB", "0 bytes")
                )
                .into_bytes();
                self.at = 0;
            }
            let n = out.len().min(self.line.len() - self.at);
            out[..n].copy_from_slice(&self.line[self.at..self.at + n]);
            self.at += n;
            Ok(n)
        }
    }
    let log = Endless { line: Vec::new(), at: 0, number: 0 };
    let (log, peak) = peak_heap::peak_of(|| message::read(BufReader::new(log)).unwrap());
    assert_eq!((log.message_count, log.messages.len()), (50_001, 1000));
    assert!(peak < 16 << 20, "{peak} bytes");
}

fn never_panics(bytes: &[u8]) {
    if let Some(report) = report(bytes) {
        let style = oomscope::output::document::Style { width: 80, unicode: true, colour: false };
        assert!(
            !oomscope::output::document::terminal(&oomscope::output::report::explain(&report, 3), style).is_empty()
        );
        serde_json::to_string(&report).unwrap();
    }
}

/// Pieces of what PyTorch prints, to be put together at random.
const PIECES: [&str; 24] = [
    "CUDA out of memory. Tried to allocate ",
    "2.00 GiB",
    "0 bytes",
    "99999999999999999999.99 GiB",
    " GPU 0 has a total capacity of ",
    " of which ",
    " is free. ",
    "Process 1 has ",
    " memory in use. ",
    "this process has ",
    " allowed; ",
    "Of the allocated memory ",
    " is allocated by PyTorch, ",
    "with 1.00 MiB allocated in private pools",
    " is reserved by PyTorch but unallocated.",
    " reserved in total by PyTorch)",
    "\n",
    "[rank0]: ",
    "File \"é.py\", line 3, in f",
    "|  PyTorch CUDA memory summary, device ID 0 |\n",
    "| Allocated memory | 99999999999999999 GiB | é | 1 B |\n",
    "{\"reserved_bytes.all.current\": 1, \"allocated_bytes.all.current\": 2}",
    "RuntimeError: MPS backend out of memory (MPS allocated: ",
    "Allocation on device 0 would exceed allowed memory. (out of memory) Requested : ",
];

proptest! {
    #[test]
    fn no_text_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        never_panics(&bytes);
    }

    #[test]
    fn no_mixture_of_messages_makes_it_panic(
        picks in proptest::collection::vec((0..PIECES.len(), "[é0-9.: ]{0,3}"), 0..40),
    ) {
        let text: String = picks.iter().map(|(i, junk)| format!("{}{junk}", PIECES[*i])).collect();
        never_panics(text.as_bytes());
    }

    #[test]
    fn no_damage_to_a_log_makes_it_panic(cuts in proptest::collection::vec((0usize..9000, any::<u8>()), 1..20)) {
        let mut log = std::fs::read(fixtures::directory().join("logs/ranks.log")).unwrap();
        for (at, byte) in cuts {
            let at = at % log.len();
            if byte % 3 == 0 { log.truncate(at.max(1)) } else { log[at] = byte }
        }
        never_panics(&log);
    }
}

#[test]
#[ignore = "slow: .ci/release runs it"]
fn logs_of_windows_are_read_and_those_that_explode_are_refused() {
    let directory = tempfile::TempDir::new().unwrap();
    let log = std::fs::read_to_string("fixtures/logs/2.15.0-fragmentation.log").unwrap();
    let utf16: Vec<u8> = format!("\u{feff}{log}").encode_utf16().flat_map(u16::to_le_bytes).collect();
    let expected = result_of(&["explain", "fixtures/logs/2.15.0-fragmentation.log"]);
    let path = program::file(&directory, "w.log", &utf16);
    let said = result_of(&["explain", &path]);
    assert_eq!(said.replace(&path, "fixtures/logs/2.15.0-fragmentation.log"), expected);

    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    bomb.write_all(&vec![b' '; 80 << 20]).unwrap();
    let bomb = program::file(&directory, "bomb.log.gz", &bomb.finish().unwrap());
    assert!(refusal(&["explain", &bomb]).contains("when decompressed"));
}

/// PyTorch in a container lists its own process as another one: the smallest that can hold what it has reserved.
#[test]
fn the_own_process_is_the_smallest_that_holds_what_is_reserved() {
    let log = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 \
        GiB of which 1.15 GiB is free. Process 111 has 20.00 GiB memory in use. Process 222 has 58.00 GiB memory in use. Of \
        the allocated memory 18.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.";
    let directory = TempDir::new().unwrap();
    let path = file(&directory, "job.log", log.as_bytes());
    let report = json_of(&["explain", &path]);
    let reason = report["failures"][0]["verdict_reason"].as_str().unwrap();
    assert!(reason.contains("process 222: 58 GiB, this process itself: about 1 GiB"), "{reason}");
}
