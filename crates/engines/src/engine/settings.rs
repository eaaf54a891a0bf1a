//! The settings of each engine's trees, as data, so that commands and reports need not know the
//! engines.

use super::Engine;
use crate::{Error, ErrorKind, Result};

/// The most settings of one engine.
const SETTINGS_MAX: usize = 8;

/// A setting that is given when a tree is made or opened.
#[derive(Debug)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// Its effect, in one line.
    pub help: &'static str,
    /// Its possible values.
    pub values: Values,
    /// Whether it is fixed when a tree is made. Otherwise it applies to one open.
    pub is_fixed: bool,
    /// Whether it is for tests and comparisons only.
    pub is_hidden: bool,
}

impl Setting {
    /// The most entries of a leaf, for engines that take smaller leaves for tests.
    pub const fn leaf_entries(least: u64, most: u64) -> Self {
        let name = "leaf-entries";
        let help = "the most entries of a leaf";
        Self {
            name,
            help,
            values: Values::Number(least, most),
            is_fixed: true,
            is_hidden: true,
        }
    }
}

/// The values of a setting.
#[derive(Clone, Copy, Debug)]
pub enum Values {
    /// A number, both ends included.
    Number(u64, u64),
    /// One of these, by its position.
    Names(&'static [&'static str]),
}

/// Values for some of an engine's settings. Settings without a value have their default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Settings([Option<u64>; SETTINGS_MAX]);

impl Settings {
    /// No setting has a value.
    pub const NONE: Self = Self([None; SETTINGS_MAX]);

    /// The value of a setting, by its position in
    /// [`EngineEntry::settings`](super::EngineEntry::settings).
    pub fn get(&self, position: usize) -> Option<u64> {
        self.0[position]
    }

    /// Sets a value, by the position of its setting.
    #[must_use]
    pub fn with(mut self, position: usize, value: u64) -> Self {
        self.0[position] = Some(value);
        self
    }

    /// These values, and for settings without one the values of `others`.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self(std::array::from_fn(|position| {
            self.0[position].or(others.0[position])
        }))
    }
}

impl Setting {
    /// The value that a text stands for.
    fn parse(&self, engine: Engine, text: &str) -> Result<u64> {
        let value = match self.values {
            Values::Number(..) => text.parse().ok(),
            Values::Names(names) => names
                .iter()
                .position(|name| *name == text)
                .map(|found| found as u64),
        };
        value.ok_or_else(|| self.refuse(engine, text))
    }

    fn accepts(&self, value: u64) -> bool {
        match self.values {
            Values::Number(least, most) => (least..=most).contains(&value),
            Values::Names(names) => value < names.len() as u64,
        }
    }

    fn refuse(&self, engine: Engine, value: &str) -> Error {
        ErrorKind::Setting {
            what: format!(
                "{}: {} = {value}; it takes {}",
                engine.name,
                self.name,
                self.takes()
            ),
        }
        .into()
    }

    /// Its possible values, in words.
    pub fn takes(&self) -> String {
        match self.values {
            Values::Number(least, most) => format!("a number from {least} to {most}"),
            Values::Names(names) => names.join(", "),
        }
    }

    /// A value in words.
    fn text(&self, value: u64) -> String {
        match self.values {
            Values::Number(..) => value.to_string(),
            Values::Names(names) => names
                .get(value as usize)
                .map_or_else(|| value.to_string(), |name| (*name).to_owned()),
        }
    }
}

impl Engine {
    /// A setting of this name, and its position.
    fn setting(self, name: &str) -> Result<(usize, &'static Setting)> {
        let settings = self.0.settings;
        let found = settings
            .iter()
            .enumerate()
            .find(|(_, setting)| setting.name == name);
        found.ok_or_else(|| {
            let names: Vec<_> = settings
                .iter()
                .filter(|known| !known.is_hidden)
                .map(|known| known.name)
                .collect();
            let known = if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(", ")
            };
            ErrorKind::Setting {
                what: format!("{} has no setting {name}; it has {known}", self.name),
            }
            .into()
        })
    }

    /// Settings by name and number.
    ///
    /// # Errors
    /// [`ErrorKind::Setting`] if the engine has no such setting, or it does not take the value.
    pub fn settings(self, values: &[(&str, u64)]) -> Result<Settings> {
        values
            .iter()
            .try_fold(Settings::NONE, |settings, &(name, value)| {
                let (position, setting) = self.setting(name)?;
                if !setting.accepts(value) {
                    return Err(setting.refuse(self, &value.to_string()));
                }
                Ok(settings.with(position, value))
            })
    }

    /// Settings as `NAME=VALUE`.
    ///
    /// # Errors
    /// The same as those of [`Engine::settings`].
    pub fn parse_settings<'t>(self, texts: impl IntoIterator<Item = &'t str>) -> Result<Settings> {
        texts
            .into_iter()
            .try_fold(Settings::NONE, |settings, text| {
                let (name, value) = text.split_once('=').unwrap_or((text, ""));
                let (position, setting) = self.setting(name)?;
                let value = setting.parse(self, value)?;
                if !setting.accepts(value) {
                    return Err(setting.refuse(self, &value.to_string()));
                }
                Ok(settings.with(position, value))
            })
    }

    /// Whether a tree that was made with `made` may be opened with `wanted`: fixed settings that
    /// are named must be the same.
    pub fn accepts(self, made: &Settings, wanted: &Settings) -> bool {
        // A setting that a root does not name has its default.
        let made = made.or(self.settings(self.0.full.settings).unwrap_or_default());
        self.0
            .settings
            .iter()
            .enumerate()
            .all(|(position, setting)| {
                let wanted = wanted.get(position);
                !setting.is_fixed || wanted.is_none() || wanted == made.get(position)
            })
    }

    /// Settings in words: `name value, name value`; empty if none is set.
    pub fn describe(self, settings: &Settings) -> String {
        let set = self
            .0
            .settings
            .iter()
            .enumerate()
            .filter_map(|(position, setting)| {
                settings
                    .get(position)
                    .map(|value| format!("{} {}", setting.name, setting.text(value)))
            });
        set.collect::<Vec<_>>().join(", ")
    }
}
