//! The fuzz targets on a bounded, repeatable stream of damaged valid inputs, so that each run of the tests has a little of it.

use crate::support::{seeds, targets};

const ROUNDS: usize = 12_000;

/// Xorshift: the same stream in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below.max(1) as u64) as usize
    }

    /// Damages an input in one to four places, mostly where and how parsers go wrong.
    fn damage(&mut self, input: &mut Vec<u8>, other: &[u8]) {
        const EVIL: [&[u8]; 8] = [
            &[0xFF; 4],
            &[0x7F, 0xFF, 0xFF, 0xFF],
            &[0x80, 0, 0, 0],
            &[0; 4],
            &[0xFF, 0xFF],
            &[1],
            &[2],
            b"99999999999999999999",
        ];
        for _ in 0..=self.roll(4) {
            let at = self.roll(input.len() + 1);
            match self.roll(7) {
                0 => input.truncate(at),
                1 => input.insert(at, self.roll(256) as u8),
                2 if at < input.len() => input[at] ^= 1 << self.roll(8),
                3 if at < input.len() => drop(input.remove(at)),
                4 => {
                    let evil = EVIL[self.roll(EVIL.len())];
                    let end = (at + evil.len()).min(input.len());
                    input.splice(at..end, evil.iter().copied());
                }
                5 => {
                    let from = self.roll(other.len() + 1);
                    let to = from + self.roll(other.len() - from + 1);
                    input.splice(at..at, other[from..to].iter().copied());
                }
                _ => {
                    let end = at + self.roll(input.len() - at + 1);
                    let piece = input[at..end].to_vec();
                    input.splice(at..at, piece);
                }
            }
        }
    }
}

#[test]
fn damaged_inputs_break_no_promise() {
    for (name, target) in targets::ALL {
        let seeds = seeds::of(name);
        let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
        for seed in &seeds {
            target(seed);
        }
        for _ in 0..ROUNDS {
            let mut input = seeds[dice.roll(seeds.len())].clone();
            let other = &seeds[dice.roll(seeds.len())];
            dice.damage(&mut input, other);
            target(&input);
        }
    }
}

/// Bytes by chance, each target's share of them: what no valid input is near to.
#[test]
fn bytes_by_chance_break_no_promise() {
    for (_name, target) in targets::ALL {
        let mut dice = Dice(0xD1B5_4A32_D192_ED03);
        for _ in 0..ROUNDS {
            let length = dice.roll(256);
            let input: Vec<u8> = (0..length).map(|_| dice.roll(256) as u8).collect();
            target(&input);
            // The same as text, which some targets ask for before anything else.
            target(String::from_utf8_lossy(&input).as_bytes());
        }
    }
}

/// Every prefix of every valid input: the place where reading goes one too far is always at an end.
#[test]
fn prefixes_break_no_promise() {
    for (name, target) in targets::ALL {
        for seed in seeds::of(name) {
            (0..=seed.len()).for_each(|end| target(&seed[..end]));
        }
    }
}
