//! The summary of growth over weeks.

use super::Summary;
use crate::base::units::{count, counted, date, percent, size};
use crate::compare::trend::{TrendKind, TrendReport, TrendRow};

impl TrendReport {
    /// Summarizes the line that creeps most.
    pub fn summary(&self) -> Summary {
        let runs = match (self.first_us, self.last_us) {
            (Some(first), Some(last)) => {
                format!("{} from {} to {}", counted(self.runs, "run"), date(first), date(last))
            }
            _ => counted(self.runs, "run"),
        };
        let limit = percent(self.max_creep_ratio);
        match self.rows.first() {
            Some(row) if row.growth == TrendKind::Creep => {
                let answer = format!("FAILED: {} creeps: {} ({runs})", row.line, describe_growth(row));
                // The place ends before the name of the function.
                let place = row.line.split(" in ").next().filter(|_| row.is_line);
                let action = match place {
                    Some(_) => "see what that line keeps from run to run",
                    None => "record with stacks and --top 50, so that lines are compared too",
                };
                Summary {
                    action: Some(action.to_owned()),
                    copy: place.map(str::to_owned),
                    ..Summary::from_answer(answer)
                }
            }
            Some(row) => Summary::from_answer(format!(
                "nothing creeps by {limit} a week or more ({runs}); {} {}",
                row.line,
                describe_growth(row)
            )),
            None => Summary::from_answer(format!("nothing creeps by {limit} a week or more ({runs})")),
        }
    }
}

/// `+1.1% (95 MiB) a week since 2026-10-03, 8 GiB -> 8.9 GiB, on 3 ranks`
fn describe_growth(row: &TrendRow) -> String {
    let sizes = format!("{} -> {}", size(row.before_bytes), size(row.after_bytes));
    let ranks = match row.ranks {
        1 => format!("on {}", row.rank),
        n => format!("on {} ranks, most on {}", count(n), row.rank),
    };
    let since = date(row.since_us);
    match row.growth {
        TrendKind::Creep => {
            format!(
                "+{} ({}) a week since {since}, {sizes}, {ranks}",
                percent(row.ratio_per_week),
                size(row.bytes_per_week)
            )
        }
        TrendKind::Step => format!("stepped up on {since}, {sizes}, {ranks}"),
    }
}
