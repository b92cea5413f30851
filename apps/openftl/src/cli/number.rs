//! The parsers of numbers refuse an argument outside its bounds and say what to write instead. They see `-1` too: it is a value
//! here, and no flag.

/// Understands a whole number from `least` to `most`.
pub(super) fn whole<T: TryFrom<u64>>(least: u64, most: u64) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| match most {
            u64::MAX => format!("write a whole number from {least} on"),
            most => format!("write a whole number from {least} to {most}"),
        })
    }
}

pub(super) fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err("write a number above zero".to_owned()),
    }
}

pub(super) fn not_negative(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number >= 0.0 && number.is_finite() => Ok(number),
        _ => Err("write a number, zero or above".to_owned()),
    }
}

/// Of arguments with these values `-1` is a value, and no flag that nobody knows.
pub(super) fn numbers(command: clap::Command) -> clap::Command {
    let is_number = |arg: &clap::Arg| {
        let names = arg.get_value_names().unwrap_or_default();
        names.iter().any(|name| ["N", "M", "J", "SIZE", "SHARE", "N|auto"].contains(&name.as_str()))
    };
    let command = command.mut_args(|arg| if is_number(&arg) { arg.allow_hyphen_values(true) } else { arg });
    command.mut_subcommands(numbers)
}
