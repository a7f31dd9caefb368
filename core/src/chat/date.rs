//! `strftime` without a time zone database.

use minijinja::{Error, ErrorKind};
use std::fmt::Write as _;

/// `strftime` of a moment in UTC, for the codes that templates use.
pub(super) fn strftime(seconds: i64, format: &str) -> Result<String, Error> {
    const MONTHS: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    const DAYS: [&str; 7] =
        ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    let month_name = MONTHS[(month - 1).rem_euclid(12) as usize];
    let day_name = DAYS[days.rem_euclid(7) as usize];
    let mut text = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        let _ = match chars.next() {
            Some('Y') => write!(text, "{year}"),
            Some('y') => write!(text, "{:02}", year.rem_euclid(100)),
            Some('m') => write!(text, "{month:02}"),
            Some('d') => write!(text, "{day:02}"),
            Some('e') => write!(text, "{day:2}"),
            Some('B') => write!(text, "{month_name}"),
            Some('b' | 'h') => write!(text, "{month_name:.3}"),
            Some('A') => write!(text, "{day_name}"),
            Some('a') => write!(text, "{day_name:.3}"),
            Some('H') => write!(text, "{hour:02}"),
            Some('I') => write!(text, "{:02}", (hour + 11) % 12 + 1),
            Some('M') => write!(text, "{minute:02}"),
            Some('S') => write!(text, "{:02}", second % 60),
            Some('p') => write!(text, "{}", if hour < 12 { "AM" } else { "PM" }),
            Some('j') => write!(text, "{:03}", days - days_before(year) + 1),
            Some('F') => write!(text, "{year}-{month:02}-{day:02}"),
            Some('T') => write!(text, "{hour:02}:{minute:02}:{:02}", second % 60),
            Some('Z') => write!(text, "UTC"),
            Some('z') => write!(text, "+0000"),
            Some('%') => write!(text, "%"),
            other => {
                let code = other.map(String::from).unwrap_or_default();
                let reason = format!("strftime_now: %{code} is not known");
                return Err(Error::new(ErrorKind::InvalidOperation, reason));
            }
        };
    }
    Ok(text)
}

/// Year, month and day of a day counted from 1970-01-01 in the proleptic Gregorian calendar.
///
/// Years are counted from 1 March, so that the leap day is the last of its year; the months then
/// start at `(153 m + 2) / 5` days.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Days from 1970-01-01 to 1 January of `year`.
fn days_before(year: i64) -> i64 {
    let last = year - 1;
    365 * (year - 1970) + last.div_euclid(4) - last.div_euclid(100) + last.div_euclid(400) - 477
}
