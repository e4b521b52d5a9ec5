//! The grammar of the string, `key:value,key:[a:b,c:d]`, as lenient as PyTorch's own.

use super::dialect::{Dialect, KnownOption, Meaning};
use super::error::ConfError;
use super::number::{self, NumberError};
use super::settings::{Reserve, Settings};
use super::tokens::{Tokens, unclosed};
use crate::base::units::{GIB, MIB};

/// What to do with a key that the release does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// Fail, as PyTorch does.
    Refuse,
    /// Warn and go on: for a string that some PyTorch has accepted already. A key of a later release
    /// is taken for what it means there.
    Warn,
}

/// What a string sets.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// The settings after the string.
    pub settings: Settings,
    /// What was passed over, a sentence each.
    pub warnings: Vec<String>,
}

/// Reads `text` as PyTorch 2.`minor` does at run time, with the settings `before` in effect.
///
/// A parse sets some settings back to their defaults and carries the others over. Options of pinned
/// memory are checked and have no effect. `backend:cudaMallocAsync` is accepted, although PyTorch
/// allows it only in the environment.
pub fn parse(
    text: &str,
    before: &Settings,
    minor: u32,
    unknown: Unknown,
) -> Result<Parsed, ConfError> {
    let dialect = Dialect::of(minor);
    let mut settings = Settings {
        max_split_size: u64::MAX,
        roundup_power2_divisions: [0; 16],
        garbage_collection_threshold: 0.0,
        one_division_is_exact: dialect.one_division_is_exact,
        ..before.clone()
    };
    let tokens = Tokens::of(text, &dialect);
    if unknown == Unknown::Warn || Dialect::find(LARGE_SEGMENT).is_some_and(|o| dialect.has(o)) {
        read_large_segment_size(&tokens, &dialect, &mut settings)?;
    }
    if dialect.resets_non_split_rounding {
        settings.max_non_split_rounding = settings.large_segment_size;
    }
    let mut reader = Reader { tokens, dialect, unknown, settings, warnings: Vec::new() };
    if reader.dialect.reads_shared_first {
        reader.read(Some(true))?;
        reader.read(Some(false))?;
    } else {
        reader.read(None)?;
    }
    Ok(Parsed { settings: reader.settings, warnings: reader.warnings })
}

const LARGE_SEGMENT: &str = "large_segment_size_mb";

/// The large segment size bounds other options and so is read ahead of them, wherever the key stands.
fn read_large_segment_size(
    tokens: &Tokens,
    dialect: &Dialect,
    settings: &mut Settings,
) -> Result<(), ConfError> {
    let mut at = 0;
    while at < tokens.list.len() {
        if tokens.is(at, LARGE_SEGMENT) {
            tokens.need(at + 1)?;
            at += 2;
            let mib = dialect.mebibytes(tokens.need(at)?, LARGE_SEGMENT)?;
            if mib <= 10 {
                let words = format!("CachingAllocator option {LARGE_SEGMENT} must be > 10 MB");
                return error(words);
            }
            settings.large_segment_size = bytes_of(mib);
        }
        at += 1;
    }
    Ok(())
}

fn bytes_of(mib: u64) -> u64 {
    mib.min(u64::MAX / MIB) * MIB
}

fn error<T>(words: impl Into<String>) -> Result<T, ConfError> {
    Err(ConfError::new(words))
}

/// What was `read` of `token`, the value of `key`; PyTorch's whole error is the name of its `reader`.
fn number<T>(
    read: Result<T, NumberError>,
    reader: &str,
    token: &str,
    key: &str,
) -> Result<T, ConfError> {
    read.map_err(|error| {
        let fault = match error {
            NumberError::None => "is not a number",
            NumberError::Range => "is out of range",
        };
        ConfError::new(reader).with_help(format!("'{token}' {fault}, for {key}"))
    })
}

fn real(token: &str, key: &str) -> Result<f64, ConfError> {
    number(number::real(token), "stod", token, key)
}

impl Dialect {
    /// A number of MiB, or of anything else that is whole.
    fn mebibytes(&self, token: &str, key: &str) -> Result<u64, ConfError> {
        let wide = self.reads_wide_numbers;
        let read = if wide { number::unsigned(token) } else { number::int(token) };
        number(read, "stoull", token, key)
    }
}

struct Reader {
    tokens: Tokens,
    dialect: Dialect,
    unknown: Unknown,
    settings: Settings,
    warnings: Vec<String>,
}

impl Reader {
    /// Reads the whole string, obeying all options or only those that are `shared` or not.
    fn read(&mut self, shared: Option<bool>) -> Result<(), ConfError> {
        let mut at = 0;
        while let Some(key) = self.tokens.list.get(at).cloned() {
            at = self.entry(&key, at, shared)? + 1;
            if at < self.tokens.list.len() {
                self.tokens.mark(at, ",")?;
            }
            at += 1;
        }
        Ok(())
    }

    /// Reads the entry at `at` and says where it ends.
    fn entry(&mut self, key: &str, at: usize, shared: Option<bool>) -> Result<usize, ConfError> {
        let known = Dialect::find(key);
        let first_reading = shared != Some(false);
        if known.is_none_or(|option| !self.dialect.has(option)) {
            let parser = if first_reading { "Accelerator" } else { "CUDA" };
            let error = self.dialect.unrecognized(key, parser);
            if self.unknown == Unknown::Refuse {
                return Err(error);
            }
            if first_reading {
                self.warnings.push(error.to_string());
            }
        }
        match known {
            Some(option) if shared.is_none_or(|shared| shared == option.is_shared) => {
                self.value(option, at)
            }
            Some(_) => self.tokens.skip(at),
            None => Ok(self.tokens.skip(at).unwrap_or(self.tokens.list.len())),
        }
    }

    /// Reads the value of `option`, whose key is at `at`, and says where it ends.
    fn value(&mut self, option: &KnownOption, at: usize) -> Result<usize, ConfError> {
        self.tokens.mark(at + 1, ":")?;
        let at = at + 2;
        let name = option.key;
        let token = self.tokens.need(at)?.to_owned();
        match option.meaning {
            Meaning::LargeSegmentSize => {} // read ahead
            Meaning::MaxSplitSize => self.settings.max_split_size = self.least(&token, name)?,
            Meaning::MaxNonSplitRounding => {
                self.settings.max_non_split_rounding = self.least(&token, name)?;
            }
            Meaning::GarbageCollection => {
                self.settings.garbage_collection_threshold = Self::threshold(&token, name)?;
            }
            Meaning::Divisions => return self.divisions(&token, at),
            Meaning::ExpandableSegments => {
                self.settings.expandable_segments = Self::flag(&token, at)?;
            }
            Meaning::Backend => self.settings.backend_is_async = Self::backend(&token)?,
            Meaning::Fraction => {
                let fraction = real(&token, name)?;
                if !(0.0..=1.0).contains(&fraction) {
                    return error("per_process_memory_fraction is invalid, set it in [0.0, 1.0]");
                }
                self.settings.per_process_memory_fraction = fraction;
            }
            Meaning::Reserve => {
                if let Some(reserve) = self.reserve(&token) {
                    self.settings.expandable_segments_reserve = Some(reserve);
                }
            }
            Meaning::ReserveByClass => return self.reserve_by_class(at),
            Meaning::ReleaseLock => {
                self.settings.release_lock_on_cudamalloc = Self::flag(&token, at)?;
            }
            Meaning::GraphReuse => {
                self.settings.graph_capture_record_stream_reuse = Self::flag(&token, at)?;
            }
            Meaning::ThrowOnOom => {
                self.settings.throw_on_cudamalloc_oom = Self::flag(&token, at)?;
            }
            Meaning::RegisterThreads => self.check_threads(&token, name)?,
            Meaning::PinnedReserve => {
                if self.dialect.mebibytes(&token, name)? == 0 {
                    return error("Pinned reserve segment size has to be greater than 0");
                }
            }
            Meaning::PinnedSize => {
                self.dialect.mebibytes(&token, name)?;
            }
            Meaning::PinnedFlag => {
                Self::flag(&token, at)?;
            }
        }
        Ok(at)
    }

    /// Bytes of a size in MiB that has to be that of a large segment, or more than that.
    fn least(&self, token: &str, name: &str) -> Result<u64, ConfError> {
        let mib = self.dialect.mebibytes(token, name)?;
        let least = self.settings.large_segment_size / MIB;
        let equal = self.dialect.allows_least_size;
        if mib > least || (equal && mib == least) {
            return Ok(bytes_of(mib));
        }
        let sign = if equal { ">=" } else { ">" };
        let words = format!("CachingAllocator option {name} too small, must be {sign} {least}");
        error(words)
    }

    fn threshold(token: &str, name: &str) -> Result<f64, ConfError> {
        let threshold = real(token, name)?;
        if threshold > 0.0 && threshold < 1.0 {
            return Ok(threshold);
        }
        error("garbage_collect_threshold is invalid, set it in (0.0, 1.0)")
    }

    fn flag(token: &str, at: usize) -> Result<bool, ConfError> {
        match token {
            "True" => Ok(true),
            "False" => Ok(false),
            _ => error(format!(
                "Expected 'True' or 'False' at index {at} in ConfigTokenizer but got '{token}'"
            )),
        }
    }

    fn backend(token: &str) -> Result<bool, ConfError> {
        match token {
            "native" => Ok(false),
            "cudaMallocAsync" => Ok(true),
            _ => error("Unknown allocator backend, options are native and cudaMallocAsync"),
        }
    }

    fn check_threads(&self, token: &str, name: &str) -> Result<(), ConfError> {
        let threads = self.dialect.mebibytes(token, name)?;
        let fault = if !threads.is_power_of_two() {
            "Number of register threads has to be power of 2"
        } else if threads > 128 {
            "Number of register threads should be less than or equal to 128"
        } else {
            return Ok(());
        };
        error(format!("{fault}, got {threads}"))
    }

    fn divisions(&mut self, token: &str, at: usize) -> Result<usize, ConfError> {
        if token == "[" {
            return self.list_of_divisions(at);
        }
        let all = self.dialect.mebibytes(token, "roundup_power2_divisions")?;
        if !all.is_power_of_two() {
            return error("For roundups, the divisions has to be power of 2 ");
        }
        self.settings.roundup_power2_divisions = [all; 16];
        Ok(at)
    }

    fn list_of_divisions(&mut self, mut at: usize) -> Result<usize, ConfError> {
        let mut is_first = true;
        let mut last = 0;
        loop {
            at += 1;
            let Some(interval) = self.tokens.list.get(at).cloned() else {
                // Up to 2.9 a list may stay open.
                return if self.tokens.is_strict { Ok(at) } else { Err(unclosed()) };
            };
            if interval == "]" {
                return Ok(at);
            }
            self.tokens.mark(at + 1, ":")?;
            at += 2;
            let divisions = self.divisions_in_list(at)?;
            let buckets = &mut self.settings.roundup_power2_divisions;
            if interval == ">" {
                let from = last + usize::from(self.dialect.rest_begins_above);
                buckets.iter_mut().skip(from).for_each(|bucket| *bucket = divisions);
            } else {
                let bucket = bucket(&interval)?;
                let from = if is_first { 0 } else { bucket };
                let filled = buckets.iter_mut().take(bucket + 1).skip(from);
                filled.for_each(|bucket| *bucket = divisions);
                is_first = false;
                last = bucket;
            }
            if !self.tokens.is(at + 1, "]") {
                at += 1;
                self.tokens.mark(at, ",")?;
            }
        }
    }

    fn divisions_in_list(&self, at: usize) -> Result<u64, ConfError> {
        let divisions =
            self.dialect.mebibytes(self.tokens.need(at)?, "roundup_power2_divisions")?;
        let zero_is_off = self.dialect.allows_zero_divisions;
        if divisions.is_power_of_two() || (divisions == 0 && zero_is_off) {
            return Ok(divisions);
        }
        let or_zero = if zero_is_off { "or 0 to disable roundup " } else { "" };
        error(format!("For roundups, the divisions has to be power of 2 {or_zero}"))
    }

    /// A reserve size; what is none leaves the one before in effect.
    fn reserve(&mut self, token: &str) -> Option<Reserve> {
        let (amount, is_gib) = match token.strip_suffix(['G', 'g']) {
            Some(amount) => (amount, true),
            None => (token, false),
        };
        let amount = number::decimal_only(amount).filter(|n| *n > 0.0 && n.is_finite());
        if amount.is_none() {
            self.warnings.push(format!(
                "Ignoring invalid expandable-segment reserve value '{token}' in \
                 PYTORCH_CUDA_ALLOC_CONF (expected a positive, finite fraction like 0.5 or an \
                 absolute size like 40G); using default."
            ));
        }
        let amount = amount?;
        if !is_gib {
            return Some(Reserve::Fraction(amount));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive, and too much becomes the most"
        )]
        Some(Reserve::Bytes((amount * GIB as f64) as u64))
    }

    /// Reserves by class of stream. No snapshot tells the class of a stream, so they go unused.
    fn reserve_by_class(&mut self, mut at: usize) -> Result<usize, ConfError> {
        let mut is_used = false;
        while self.tokens.need(at + 1)? != "]" {
            self.tokens.need(at + 2)?;
            at += 3;
            let value = self.tokens.need(at)?.to_owned();
            is_used |= self.reserve(&value).is_some();
            at += usize::from(self.tokens.is(at + 1, ","));
        }
        if is_used {
            self.warnings.push(
                "expandable_segments_reserve_by_class has no effect: the class of a stream is not \
                 recorded"
                    .to_owned(),
            );
        }
        Ok(at + 1)
    }
}

/// The bucket of divisions for sizes of `interval` MiB and more.
fn bucket(interval: &str) -> Result<usize, ConfError> {
    let mib = number(number::unsigned(interval), "stoull", interval, "roundup_power2_divisions")?;
    if !mib.is_power_of_two() {
        return error("For roundups, the intervals have to be power of 2 ");
    }
    Ok(usize::try_from(mib.trailing_zeros()).map_or(15, |bucket| bucket.min(15)))
}
