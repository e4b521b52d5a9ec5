//! The screen of `oomscope explore`, without a terminal: pages as they are, and keys at random.
//! Slow: many screens are drawn.

use std::path::{Path, PathBuf};

use oomscope::analysis::{Options, SnapshotReport, analyze_study};
use oomscope::base::units::{is_active, size};
use oomscope::explore::{Analyzed, Colours, Input, Look, Recording, State, draw};
use oomscope::snapshot::{Snapshot, Source};
use oomscope::study::{Scope, Study};
use ratatui_core::backend::TestBackend;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Color;
use ratatui_core::terminal::Terminal;

use crate::support::fixtures;
use crate::support::mutate::Random;

const UNICODE: Look = Look { colours: Colours::True, unicode: true };
const OOM: &str = "2.15.0-oom_varlen-at-oom";

/// The first device of a file on a screen, everything read.
struct Explored<'s, 'a> {
    state: State<'s, 'a>,
    area: Rect,
}

impl<'s, 'a> Explored<'s, 'a> {
    fn new(study: &'s Study<'a>, report: &SnapshotReport, path: &str, size: [u16; 2]) -> Option<Self> {
        let device = study.devices().next()?;
        let mut state = State::new(device, path, false);
        state.set_recording(Recording::from_device(device));
        state.set_analysis(Analyzed::from_report(device, report));
        Some(Self { state, area: Rect::new(0, 0, size[0], size[1]) })
    }

    fn press(&mut self, input: Input) {
        self.state.handle(input);
    }

    /// Presses the characters of `keys`; a line break is Enter.
    fn type_in(&mut self, keys: &str) {
        for key in keys.chars() {
            self.press(if key == '\n' { Input::Enter } else { Input::Char(key) });
        }
    }

    /// The lines of the screen.
    fn lines(&self, look: Look) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(self.area.width, self.area.height)).unwrap();
        terminal.draw(|frame| draw(&self.state, frame.buffer_mut(), look)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |cells: &[ratatui_core::buffer::Cell]| cells.iter().map(|cell| cell.symbol()).collect::<String>();
        buffer.content.chunks(usize::from(self.area.width)).map(|cells| line(cells).trim_end().to_owned()).collect()
    }

    fn page(&self, look: Look) -> String {
        self.lines(look).join("\n")
    }
}

/// Calls `check` with the recording at `path` on a screen.
fn explore<T>(path: &Path, size: [u16; 2], check: impl FnOnce(Explored<'_, '_>) -> T) -> Option<T> {
    let name = path.file_name().unwrap().to_str().unwrap();
    let inside = path.strip_prefix(fixtures::directory()).ok();
    if let Some(fixture) = inside.and_then(|inside| inside.to_str()?.strip_suffix(".pickle.gz")) {
        return Explored::new(fixtures::study(fixture), fixtures::report(fixture), name, size).map(check);
    }
    let snapshot = Snapshot::read(&Source::open(path).unwrap(), &|_| ()).ok()?;
    let study = Study::new(&snapshot, Scope::default());
    let report = analyze_study(&study, name, 0, Options { top: 10, ..Options::default() });
    Explored::new(&study, &report, name, size).map(check)
}

fn compare(name: &str, page: &str) {
    let mut settings = insta::Settings::new();
    settings.set_snapshot_path("../explore_screens");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, page));
}

#[test]
fn screens_of_three_sizes() {
    for size in [[80, 24], [120, 40], [250, 80]] {
        let compare_views = |mut explored: Explored<'_, '_>| {
            for (view, keys) in [("memory", "1"), ("map", "2"), ("holders", "3")] {
                explored.type_in(keys);
                compare(&format!("{view}.{}x{}", size[0], size[1]), &explored.page(UNICODE));
            }
        };
        explore(&fixtures::path(OOM), size, compare_views).unwrap();
    }
}

/// The answer is of the failed request at the moment.
#[test]
fn the_answer_follows_the_selected_failure() {
    let check = |mut explored: Explored<'_, '_>| {
        let report = fixtures::report("2.15.0-fuzz-oom");
        let ooms = &report.devices[0].ooms;
        assert!(ooms.len() > 3);
        for oom in ooms.iter().rev().take(4) {
            explored.type_in(&format!(":{}\n1", oom.event));
            let head = explored.lines(UNICODE)[1..3].join(" ");
            assert!(head.contains(&size(oom.requested_bytes)), "entry {}: {head}", oom.event);
        }
    };
    explore(&fixtures::path("2.15.0-fuzz-oom"), [100, 40], check).unwrap();
}

#[test]
#[ignore = "slow: .ci/release runs it"]
fn screens_of_other_recordings_and_terminals() {
    let kept = fixtures::directory().join("recorded/2.15.0-losses_kept.pickle.gz");
    let plain = Look { colours: Colours::None, unicode: false };
    let ansi = Look { colours: Colours::Ansi, unicode: false };
    for (name, path, keys, look) in [
        ("no-history", fixtures::path("2.15.0-gpt_varlen-no-history"), "1", UNICODE),
        ("no-history-map", fixtures::path("2.15.0-gpt_varlen-no-history"), "2", UNICODE),
        ("names", kept.clone(), "3g", UNICODE),
        ("stack-with-source", kept, "3\n", UNICODE),
        ("plain-memory", fixtures::path(OOM), "1", plain),
        ("plain-map", fixtures::path(OOM), "2", plain),
        ("no-unicode-memory", fixtures::path(OOM), "1", ansi),
        ("difference", fixtures::path(OOM), ":step 3\nd:peak\nd", UNICODE),
        ("keys", fixtures::path(OOM), "?", UNICODE),
    ] {
        let page = explore(&path, [80, 24], |mut explored| {
            explored.type_in(keys);
            explored.page(look)
        });
        compare(name, &page.unwrap());
    }
}

/// The difference is what came since the mark, not what went.
#[test]
#[ignore = "slow: .ci/release runs it"]
fn a_difference_is_that_of_two_analyses() {
    let path = fixtures::path(OOM);
    let allocated = |entry: u64| {
        let arguments = ["analyze", "--format", "json", "--at", &entry.to_string(), path.to_str().unwrap()];
        let report: serde_json::Value = serde_json::from_str(&crate::support::program::result_of(&arguments)).unwrap();
        report["snapshots"][0]["devices"][0]["allocated_bytes"].as_u64().unwrap()
    };
    for [first, second] in [[8_800, 53_000], [53_000, 8_800]] {
        let [before, after] = [first, second].map(allocated);
        let change = oomscope::base::units::signed_size(oomscope::base::units::signed_difference(before, after));
        let foot = format!("{change} since {}", oomscope::base::units::count(first));
        explore(&path, [120, 40], |mut explored| {
            explored.type_in(&format!(":{first}\nd:{second}\nd"));
            let page = explored.page(UNICODE);
            assert!(page.contains(&foot), "{foot}: {page}");
            // What is gone has less.
            let gone: Vec<&str> = page.lines().filter(|line| line.contains(" 0 B ")).collect();
            assert!(!gone.is_empty() && gone.iter().all(|line| line.contains(" -")), "{page}");
        });
    }
}

/// Each view shows something on the smallest screen.
#[test]
fn the_smallest_screen_has_every_view() {
    explore(&fixtures::path(OOM), [40, 10], |mut explored| {
        // The request and the reason are whole, and the picture has room.
        let lines = explored.lines(UNICODE);
        assert!(lines[1].contains("399 MiB") && lines[1].contains("workloads.py:26"), "{lines:?}");
        assert!(lines[2].contains("capacity"), "{lines:?}");
        assert!(lines.iter().filter(|line| line.contains('█')).count() >= 3, "{lines:?}");
        for (keys, shown) in [("1", "step"), ("2", "✗✗"), ("3", "workloads.py")] {
            explored.type_in(keys);
            assert!(explored.page(UNICODE).contains(shown), "{}", explored.page(UNICODE));
        }
    });
}

#[test]
fn typed_places_are_found_or_refused() {
    explore(&fixtures::path(OOM), [120, 24], |mut explored| {
        for (keys, foot) in [
            (":0\n", "0/53,079"),
            (":end\n", "53,078/53,079"),
            (":start\n", "before the first entry"),
            (":step 3\n", "step 3"),
            (":999,999\n", "no trace has an entry 999999"),
            (":nowhere\n", "give the index of a trace entry"),
        ] {
            explored.type_in(keys);
            let lines = explored.lines(UNICODE);
            assert!(lines.last().unwrap().contains(foot), "{keys:?}: {}", lines.last().unwrap());
        }
    });
}

/// Names of a file can be anything; the terminal gets characters that it shows.
#[test]
fn hostile_names_are_text() {
    let name = "\u{1b}[2J\u{9b}31m\u{202e}\u{7}\r\n##[error]";
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hostile\u{1b}[31m.json");
    std::fs::write(&path, super::plain_text::snapshot(&[name])).unwrap();
    walk(&path, 400, 3);
    explore(&path, [120, 40], |mut explored| {
        explored.type_in("3g");
        assert!(explored.page(UNICODE).contains("\\u{1b}[2J"), "{}", explored.page(UNICODE));
    });
}

/// Where a cell has several groups and another cell lies on it, no part of it looks free.
#[test]
fn the_stack_of_groups_has_no_holes() {
    explore(&fixtures::path(OOM), [110, 28], |mut explored| {
        explored.type_in(":start\n");
        let mut buffer = Buffer::empty(explored.area);
        draw(&explored.state, &mut buffer, UNICODE);
        let is_filled = |x: u16, y: u16| "▁▂▃▄▅▆▇█".contains(buffer[(x, y)].symbol());
        let mut shared = 0;
        for (x, y) in (11..76).flat_map(|x| (4..24).map(move |y| (x, y))) {
            if is_filled(x, y) && buffer[(x, y)].symbol() != "█" && is_filled(x, y - 1) {
                assert_ne!(buffer[(x, y)].bg, Color::Reset, "{x}, {y}: {}", explored.page(UNICODE));
                shared += 1;
            }
        }
        assert!(shared > 50, "{shared}");
    });
}

/// A key, most of them with a meaning.
fn input(random: &mut Random) -> Input {
    match random.below(34) {
        0 => Input::Left(random.below(2) > 0),
        1 => Input::Right(random.below(2) > 0),
        2..=4 => Input::Down,
        5 => Input::Up,
        6 => Input::PageUp,
        7 => Input::PageDown,
        8 => Input::Home,
        9 => Input::End,
        10 | 11 => Input::Enter,
        12 | 13 => Input::Escape,
        14 => Input::Backspace,
        15 => Input::Tab,
        _ => {
            let keys: Vec<char> = "1234ws+-af0po[]:g/dcym?0123456789.,stepakfilur\u{1b}\u{202e}中é".chars().collect();
            Input::Char(keys[random.below(keys.len())])
        }
    }
}

/// Nanoseconds that this thread has run.
fn thread_time() -> u64 {
    // The kernel brings the figure up to date when the thread gives up its core.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|time| time.parse().ok()).unwrap_or(0)
}

/// Presses `count` keys at random; returns the longest processor time of a key and its frame, in nanoseconds.
fn walk(path: &Path, count: u64, seed: u64) -> u64 {
    let longest = explore(path, [120, 40], |mut explored| {
        let (mut random, mut longest) = (Random::new(seed), 0);
        for step in 0..count {
            if random.below(50) == 0 {
                let [width, height] = [300, 100].map(|end| u16::try_from(random.below(end)).unwrap() + 1);
                explored.area = Rect::new(0, 0, width, height);
            }
            let input = input(&mut random);
            let start = thread_time();
            explored.state.handle(input);
            let mut elapsed = thread_time() - start;
            let look = [UNICODE, Look { colours: Colours::Indexed, unicode: false }][usize::from(step % 7 == 0)];
            let mut buffer = Buffer::empty(explored.area);
            let start = thread_time();
            draw(&explored.state, &mut buffer, look);
            elapsed += thread_time() - start;
            longest = longest.max(elapsed);
            for cell in &buffer.content {
                assert!(!cell.symbol().chars().any(is_active), "{path:?}, key {step}: {:?}", cell.symbol());
                assert!(look.unicode || cell.symbol().is_ascii(), "{path:?}, key {step}: {:?}", cell.symbol());
            }
        }
        longest
    });
    longest.unwrap_or(0) // nothing to show
}

#[test]
#[ignore = "slow: .ci/release runs it"]
fn keys_at_random_never_fail() {
    for (seed, name) in
        (1..).zip([OOM, "2.15.0-streams-expandable-lag", "2.15.0-gpt_varlen-no-history", "2.15.0-graphs"])
    {
        walk(&fixtures::path(name), 150, seed);
    }
    walk(&fixtures::directory().join("recorded/2.15.0-losses_kept.pickle.gz"), 150, 9);
}

/// `EXPLORE_FILES` has the paths of snapshots, separated by spaces; `EXPLORE_KEYS` the number of keys for each.
#[test]
#[ignore = "to measure: cargo test --release --test suite -- --ignored --nocapture explore"]
fn a_key_takes_less_than_50_ms() {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let keys = variable("EXPLORE_KEYS").parse().unwrap_or(10_000);
    let mut slowest = 0;
    for path in variable("EXPLORE_FILES").split_whitespace().map(PathBuf::from) {
        let longest = walk(&path, keys, 7);
        println!("{:6.1} ms  {}", longest as f64 / 1e6, path.display());
        slowest = slowest.max(longest);
    }
    assert!(slowest < 50_000_000, "{slowest} ns");
}
