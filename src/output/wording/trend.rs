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
                let answer = format!("FAILED: {} creeps: {} ({runs})", row.line, row.describe_growth());
                let place = row.place();
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
                row.describe_growth()
            )),
            None => Summary::from_answer(format!("nothing creeps by {limit} a week or more ({runs})")),
        }
    }
}

impl TrendRow {
    /// `app/train.py:27` of a source line, without the function.
    pub(crate) fn place(&self) -> Option<&str> {
        self.line.split(" in ").next().filter(|_| self.is_line)
    }

    /// `+1.1% (95 MiB) a week since 2026-10-03, 8 GiB -> 8.9 GiB, on 3 ranks`
    pub(crate) fn describe_growth(&self) -> String {
        let sizes = format!("{} -> {}", size(self.before_bytes), size(self.after_bytes));
        let ranks = match self.ranks {
            1 => format!("on {}", self.rank),
            n => format!("on {} ranks, most on {}", count(n), self.rank),
        };
        let since = date(self.since_us);
        match self.growth {
            TrendKind::Creep => {
                let [ratio, bytes] = [percent(self.ratio_per_week), size(self.bytes_per_week)];
                format!("+{ratio} ({bytes}) a week since {since}, {sizes}, {ranks}")
            }
            TrendKind::Step => format!("stepped up on {since}, {sizes}, {ranks}"),
        }
    }
}
