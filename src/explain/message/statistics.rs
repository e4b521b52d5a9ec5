//! Parses the allocator's statistics: the table of `torch.cuda.memory_summary()`, and `torch.cuda.memory_stats()` as
//! JSON, as a Python dictionary, or as `key: value` lines.

use super::line::LineSource;
use crate::explain::table::PrintedAmount;

/// A current value and its peak.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gauge {
    /// Value when the statistics were printed.
    pub current: Option<PrintedAmount>,
    /// Peak since the program started or the peaks were reset.
    pub peak: Option<PrintedAmount>,
}

/// The statistics of one device. Values that are not printed are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statistics {
    /// First line of the statistics in the log, from 1.
    pub line: u64,
    /// The rank or process that the log names for these lines.
    pub source: LineSource,
    /// True for the table of `memory_summary()`.
    pub is_table: bool,
    /// Absent for `memory_stats()`, which does not print it.
    pub device: Option<u64>,
    /// Live blocks, with rounding.
    pub allocated: Gauge,
    /// Allocated blocks, and freed ones that other streams still use.
    pub active: Gauge,
    /// The sizes that the program requested, before rounding.
    pub requested: Gauge,
    /// Memory that the allocator has from the device.
    pub reserved: Gauge,
    /// Free memory in segments with live blocks.
    pub inactive_split: Gauge,
    /// Bytes reserved by private pools; only `memory_stats()` of PyTorch 2.13 and later prints it.
    pub private_pools: Option<u64>,
    /// `num_alloc_retries`: the device refused memory, and the cache was emptied for a retry.
    pub retries: Option<u64>,
    /// `num_ooms`: the retry failed too.
    pub ooms: Option<u64>,
}

impl Statistics {
    fn new(line: u64, source: &LineSource, is_table: bool) -> Self {
        Self { line, source: source.clone(), is_table, ..Self::default() }
    }

    /// True if the numbers are enough for an evaluation.
    pub(super) fn is_complete(&self) -> bool {
        self.reserved.current.is_some() && self.allocated.current.is_some()
    }
}

/// Parses the title line of a table.
pub(super) fn parse_table_header(text: &str, line: u64, source: &LineSource) -> Option<Statistics> {
    let (_, device) = text.split_once("PyTorch CUDA memory summary, device ID ")?;
    let mut table = Statistics::new(line, source, true);
    table.device = device.split_whitespace().next().and_then(|id| id.parse().ok());
    Some(table)
}

/// Parses a row of `table`; returns false if `text` is not a row.
pub(super) fn parse_table_row(table: &mut Statistics, text: &str) -> bool {
    let Some((_, row)) = text.split_once('|') else { return false }; // no cells
    if let Some((ooms, retries)) = row.split_once('|')
        && let Some((_, ooms)) = ooms.split_once("CUDA OOMs:")
        && let Some((_, retries)) = retries.split_once("retries:")
    {
        let count = |text: &str| text.trim_matches(['|', ' ']).parse().ok();
        (table.ooms, table.retries) = (count(ooms), count(retries));
        return true;
    }
    let mut cells = row.split('|').map(str::trim);
    let gauge = match cells.next() {
        Some("Allocated memory") => &mut table.allocated,
        Some("Active memory") => &mut table.active,
        Some("Requested memory") => &mut table.requested,
        Some("GPU reserved memory") => &mut table.reserved,
        Some("Non-releasable memory") => &mut table.inactive_split,
        _ => return true, // other rows are not needed
    };
    let mut amount = || {
        let (units, unit) = cells.next()?.split_once(' ')?;
        PrintedAmount::from_table_cell(units.parse().ok()?, unit.trim())
    };
    (gauge.current, gauge.peak) = (amount(), amount());
    true
}

/// Adds the values in `text` to `open`. When the next statistics start, complete ones are moved to `done`.
pub(super) fn parse_stats(
    open: &mut Option<Statistics>,
    done: &mut Vec<Statistics>,
    text: &str,
    (line, source): (u64, &LineSource),
) {
    let is_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    let mut rest = text;
    while let Some(start) = rest.find(is_key) {
        let (_, token) = rest.split_at(start);
        let end = token.find(|c| !is_key(c)).unwrap_or(token.len());
        let (key, behind) = token.split_at(end);
        rest = behind;
        if !is_stats_key(key) {
            continue;
        }
        let value = behind.trim_start_matches(['"', '\'', ':', '=', ',', ' ', '|']);
        let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
        let Some(number) = value.get(..digits).and_then(|digits| digits.parse().ok()) else {
            continue; // no number, or one above 64 bits
        };
        let record = open.get_or_insert_with(|| Statistics::new(line, source, false));
        if !set_value(record, key, number) {
            // A repeated key starts the statistics of the next device, or of a later time.
            let mut next = Statistics::new(line, source, false);
            set_value(&mut next, key, number);
            done.extend(open.replace(next).filter(Statistics::is_complete));
        }
    }
}

const PRIVATE_POOLS_KEY: &str = "reserved_bytes_by_private_pools.";

/// A fast check, since most words of a log are not keys.
fn is_stats_key(key: &str) -> bool {
    key.contains("_bytes.all.")
        || matches!(key, "num_ooms" | "num_alloc_retries")
        || (key.starts_with(PRIVATE_POOLS_KEY) && key.ends_with(".all.current"))
}

/// Returns false if `key` already has a value.
fn set_value(record: &mut Statistics, key: &str, number: u64) -> bool {
    if key.starts_with(PRIVATE_POOLS_KEY) {
        if key.ends_with(".all.current") {
            // Several keys, one for each pool, are added up.
            record.private_pools = Some(record.private_pools.unwrap_or(0).saturating_add(number));
        }
        return true;
    }
    let first = |slot: &mut Option<u64>| slot.replace(number).is_none();
    match key {
        "num_ooms" => return first(&mut record.ooms),
        "num_alloc_retries" => return first(&mut record.retries),
        _ => {}
    }
    let Some((name, which)) = key.split_once("_bytes.all.") else {
        debug_assert!(false, "`is_stats_key` admits no other key");
        return true;
    };
    let gauge = match name {
        "allocated" => &mut record.allocated,
        "active" => &mut record.active,
        "requested" => &mut record.requested,
        "reserved" => &mut record.reserved,
        "inactive_split" => &mut record.inactive_split,
        _ => return true,
    };
    let slot = match which {
        "current" => &mut gauge.current,
        "peak" => &mut gauge.peak,
        _ => return true,
    };
    slot.replace(PrintedAmount::exact(number)).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
|===========================================================================|
|                  PyTorch CUDA memory summary, device ID 3                 |
|---------------------------------------------------------------------------|
|            CUDA OOMs: 1            |        cudaMalloc retries: 2         |
|===========================================================================|
|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |
|---------------------------------------------------------------------------|
| Allocated memory      |      5 MiB | 356352 KiB |   2960 MiB |   2960 MiB |
|       from large pool |      0 B   | 356352 KiB |   2960 MiB |   2960 MiB |
| GPU reserved memory   | 356352 KiB | 356353 KiB | 356352 KiB |      0 B   |
| Non-releasable memory |      0 B   |      7 MiB |      0 B   |      0 B   |
|===========================================================================|";

    #[test]
    fn a_table_is_read_row_by_row() {
        let mut lines = TABLE.lines().skip(1);
        let mut table = parse_table_header(lines.next().unwrap(), 2, &LineSource::default()).unwrap();
        for line in lines {
            assert!(parse_table_row(&mut table, line), "{line}");
        }
        assert!(!parse_table_row(&mut table, "loss: 0.1"));
        let bytes = |amount: &Option<PrintedAmount>| amount.as_ref().map(|amount| amount.bytes);
        assert_eq!((table.device, table.ooms, table.retries), (Some(3), Some(1), Some(2)));
        assert_eq!(bytes(&table.allocated.current), Some(5 << 20));
        assert_eq!(bytes(&table.reserved.peak), Some(356_353 << 10));
        assert_eq!(bytes(&table.inactive_split.peak), Some(7 << 20));
        assert!(table.is_complete() && table.requested == Gauge::default());
    }

    fn read(texts: &[&str]) -> Vec<Statistics> {
        let (mut open, mut done) = (None, Vec::new());
        for (line, text) in (1..).zip(texts) {
            parse_stats(&mut open, &mut done, text, (line, &LineSource::default()));
        }
        done.extend(open.filter(Statistics::is_complete));
        done
    }

    #[test]
    fn statistics_are_read_in_every_format() {
        let forms: [&[&str]; 4] = [
            &[r#"{"allocated_bytes.all.current": 5, "reserved_bytes.all.current": 7, "num_ooms": 1}"#],
            &["OrderedDict([('allocated_bytes.all.current', 5), ('reserved_bytes.all.current', 7), ('num_ooms', 1)])"],
            &["{'allocated_bytes.all.current': 5,", " 'reserved_bytes.all.current': 7, 'num_ooms': 1}"],
            &["allocated_bytes.all.current  5", "reserved_bytes.all.current = 7", "num_ooms: 1"],
        ];
        for form in forms {
            let [one] = &read(form)[..] else { panic!("{form:?}") };
            assert_eq!(one.allocated.current, Some(PrintedAmount::exact(5)), "{form:?}");
            assert_eq!(one.reserved.current, Some(PrintedAmount::exact(7)), "{form:?}");
            assert_eq!((one.ooms, one.line), (Some(1), 1), "{form:?}");
        }
    }

    #[test]
    fn a_repeated_key_starts_the_next_device() {
        let one = "'allocated_bytes.all.current': 5, 'reserved_bytes.all.current': 7, 'reserved_bytes_by_private_pools.0_1.all.current': 2, 'reserved_bytes_by_private_pools.1_0.all.current': 1, 'reserved_bytes_by_private_pools.1_0.small_pool.current': 1";
        let found = read(&[one, one, "num_ooms 3"]);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].private_pools, found[1].private_pools), (Some(3), Some(3)));
        assert_eq!((found[0].ooms, found[1].ooms), (None, Some(3)));
        assert!(read(&["num_ooms: 3", "allocated_bytes.all.current: x"]).is_empty());
    }
}
