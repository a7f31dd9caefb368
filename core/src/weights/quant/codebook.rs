//! Search of the formats whose codes are rows of a codebook of magnitudes, with a sign for each
//! weight. The signs of 8 weights hold an even number of minuses, so where the values have an odd
//! number one of them must be stored with the wrong sign.
//!
//! With the scale `s`, weights `w` and a row `g` the error of a row is
//! `sum w (|x| - s g)^2 = sum w x^2 - 2 s C + s^2 Q`, with `C = sum w |x| g` and `Q = sum w g^2`; a
//! wrong sign at `k` takes `2 w |x| g` of place `k` from `C`. `C` and `Q` of all rows are computed
//! once, after which every scale costs two operations a row, and the best row and the best place
//! for the wrong sign are found exactly.

use super::block::Half;
use super::fit::Samples;

/// Values that share a sign mask.
pub(super) const OCTET: usize = 8;
/// Times that factor and scale codes are fitted to each other.
const ROUNDS: usize = 3;
/// Highest code of a scale.
const HIGHEST: i32 = 15;
/// Candidates for the level that the largest magnitude of a group gets, relative to the highest of
/// the codebook; then the same relative to the best of them.
const COARSE: [f32; 5] = [0.64, 0.77, 0.9, 1.03, 1.17];
const FINE: [f32; 2] = [0.94, 1.06];

/// Codebook by places: `[place][row]`, so that a loop over rows reads neighbours.
pub(super) type Places<const N: usize, const ROWS: usize> = [[f32; ROWS]; N];

/// A codebook of packed rows of 8, by places.
pub(super) const fn octet_places<const ROWS: usize>(grid: &[u64; ROWS]) -> Places<8, ROWS> {
    let mut places = [[0.0; ROWS]; 8];
    let mut at = 0;
    while at < 8 * ROWS {
        places[at / ROWS][at % ROWS] = (grid[at % ROWS] >> (8 * (at / ROWS)) & 255) as f32;
        at += 1;
    }
    places
}

/// A codebook of packed rows of 4, by places.
pub(super) const fn quad_places<const ROWS: usize>(grid: &[u32; ROWS]) -> Places<4, ROWS> {
    let mut places = [[0.0; ROWS]; 4];
    let mut at = 0;
    while at < 4 * ROWS {
        places[at / ROWS][at % ROWS] = (grid[at % ROWS] >> (8 * (at / ROWS)) & 255) as f32;
        at += 1;
    }
    places
}

/// `C` and `Q` of every row for `N` values, and `C` with the best wrong sign.
pub(super) struct Sums<const ROWS: usize> {
    cross: [f32; ROWS],
    cross_flipped: [f32; ROWS],
    square: [f32; ROWS],
}

impl<const ROWS: usize> Sums<ROWS> {
    pub(super) fn new<const N: usize>(places: &Places<N, ROWS>, x: Samples<'_>) -> Self {
        let (mut cross, mut square) = ([0.0; ROWS], [0.0; ROWS]);
        let mut loss = [f32::MAX; ROWS];
        for (grid, (value, weight)) in places.iter().zip(x.pairs()) {
            let weighted = weight * value.abs();
            for row in 0..ROWS {
                let term = weighted * grid[row];
                cross[row] += term;
                loss[row] = if term < loss[row] { term } else { loss[row] };
                square[row] += weight * grid[row] * grid[row];
            }
        }
        let mut cross_flipped = cross;
        for (flipped, loss) in cross_flipped.iter_mut().zip(loss) {
            *flipped -= 2.0 * loss;
        }
        Self { cross, cross_flipped, square }
    }

    fn cross(&self, flipped: bool) -> &[f32; ROWS] {
        if flipped { &self.cross_flipped } else { &self.cross }
    }

    /// Error of the best row, less the constant.
    fn cost(&self, scale: f32, flipped: bool) -> f32 {
        const LANES: usize = 8;
        let (twice, squared) = (2.0 * scale, scale * scale);
        let mut least = [f32::MAX; LANES];
        let cross = self.cross(flipped).as_chunks::<LANES>().0;
        for (cross, square) in cross.iter().zip(self.square.as_chunks::<LANES>().0) {
            for lane in 0..LANES {
                let cost = squared * square[lane] - twice * cross[lane];
                least[lane] = if cost < least[lane] { cost } else { least[lane] };
            }
        }
        least.into_iter().fold(f32::MAX, f32::min)
    }

    /// The best row; the first one wins ties.
    fn row(&self, scale: f32, flipped: bool) -> usize {
        let (twice, squared) = (2.0 * scale, scale * scale);
        let (mut best, mut least) = (0, f32::MAX);
        for (row, (cross, square)) in self.cross(flipped).iter().zip(&self.square).enumerate() {
            let cost = squared * square - twice * cross;
            if cost < least {
                (best, least) = (row, cost);
            }
        }
        best
    }
}

/// What 8 values are stored as: their codebook rows, and a mask of minuses of even parity.
#[derive(Clone, Copy, Default)]
pub(super) struct Choice {
    pub(super) rows: [u16; 2],
    pub(super) signs: u8,
    /// `C` and `Q`, for the scale of least squared error.
    cross: f32,
    square: f32,
}

/// 8 values in front of a codebook.
pub(super) trait Octet: Sized {
    /// Highest magnitude of the codebook.
    const TOP: f32;
    fn new(x: Samples<'_>) -> Self;
    /// Error of the best choice, less a constant.
    fn cost(&self, scale: f32) -> f32;
    fn choose(&self, scale: f32) -> Choice;
}

/// Mask of the negative values.
fn minuses(values: &[f32]) -> u8 {
    values.iter().enumerate().fold(0, |mask, (k, v)| mask | u8::from(*v < 0.0) << k)
}

fn odd(signs: u8) -> bool {
    signs.count_ones() % 2 == 1
}

/// Place in a row where a wrong sign costs least.
fn cheapest<const N: usize, const ROWS: usize>(
    places: &Places<N, ROWS>,
    row: usize,
    x: Samples<'_>,
) -> usize {
    let (mut best, mut least) = (0, f32::MAX);
    for (k, (grid, (value, weight))) in places.iter().zip(x.pairs()).enumerate() {
        let loss = weight * value.abs() * grid[row];
        if loss < least {
            (best, least) = (k, loss);
        }
    }
    best
}

/// A copy of 8 samples.
#[derive(Clone, Copy)]
struct Copied {
    values: [f32; OCTET],
    weights: [f32; OCTET],
}

impl Copied {
    fn new(x: Samples<'_>) -> Self {
        let mut copy = Self { values: [0.0; OCTET], weights: [0.0; OCTET] };
        copy.values.iter_mut().zip(x.values).for_each(|(to, from)| *to = *from);
        copy.weights.iter_mut().zip(x.weights).for_each(|(to, from)| *to = *from);
        copy
    }

    fn part(&self, from: usize, len: usize) -> Samples<'_> {
        Samples { values: &self.values[from..from + len], weights: &self.weights[from..from + len] }
    }
}

/// 8 values that are one row of a codebook.
pub(super) struct Whole<const ROWS: usize, C> {
    x: Copied,
    sums: Sums<ROWS>,
    codebook: std::marker::PhantomData<C>,
}

/// A codebook of rows of `N`.
pub(super) trait Codebook<const N: usize, const ROWS: usize> {
    const TOP: f32;
    fn places() -> &'static Places<N, ROWS>;
}

impl<const ROWS: usize, C: Codebook<8, ROWS>> Octet for Whole<ROWS, C> {
    const TOP: f32 = C::TOP;

    fn new(x: Samples<'_>) -> Self {
        let sums = Sums::new(C::places(), x);
        Self { x: Copied::new(x), sums, codebook: std::marker::PhantomData }
    }

    fn cost(&self, scale: f32) -> f32 {
        self.sums.cost(scale, odd(minuses(&self.x.values)))
    }

    fn choose(&self, scale: f32) -> Choice {
        let mut signs = minuses(&self.x.values);
        let flipped = odd(signs);
        let row = self.sums.row(scale, flipped);
        if flipped {
            signs ^= 1 << cheapest(C::places(), row, self.x.part(0, 8));
        }
        let (cross, square) = (self.sums.cross(flipped)[row], self.sums.square[row]);
        Choice { rows: [row as u16, 0], signs, cross, square }
    }
}

/// 8 values that are two rows of a codebook.
pub(super) struct Halves<const ROWS: usize, C> {
    x: Copied,
    sums: [Sums<ROWS>; 2],
    codebook: std::marker::PhantomData<C>,
}

impl<const ROWS: usize, C: Codebook<4, ROWS>> Halves<ROWS, C> {
    /// Whether either half takes the wrong sign, and the error.
    fn flips(&self, scale: f32) -> ([bool; 2], f32) {
        let [first, second] = &self.sums;
        if !odd(minuses(&self.x.values)) {
            return ([false; 2], first.cost(scale, false) + second.cost(scale, false));
        }
        let in_first = first.cost(scale, true) + second.cost(scale, false);
        let in_second = first.cost(scale, false) + second.cost(scale, true);
        if in_first <= in_second { ([true, false], in_first) } else { ([false, true], in_second) }
    }
}

impl<const ROWS: usize, C: Codebook<4, ROWS>> Octet for Halves<ROWS, C> {
    const TOP: f32 = C::TOP;

    fn new(x: Samples<'_>) -> Self {
        let x = Copied::new(x);
        let sums = [0, 4].map(|from| Sums::new(C::places(), x.part(from, 4)));
        Self { x, sums, codebook: std::marker::PhantomData }
    }

    fn cost(&self, scale: f32) -> f32 {
        self.flips(scale).1
    }

    fn choose(&self, scale: f32) -> Choice {
        let (flips, _) = self.flips(scale);
        let mut choice = Choice { signs: minuses(&self.x.values), ..Choice::default() };
        for (half, (sums, flipped)) in self.sums.iter().zip(flips).enumerate() {
            let row = sums.row(scale, flipped);
            if flipped {
                let place = cheapest(C::places(), row, self.x.part(4 * half, 4));
                choice.signs ^= 1 << (4 * half + place);
            }
            choice.rows[half] = row as u16;
            choice.cross += sums.cross(flipped)[row];
            choice.square += sums.square[row];
        }
        choice
    }
}

/// A super-block in codebook rows. The scale of a group is `unit * d * (0.5 + code)`.
pub(super) struct Coded<const GROUPS: usize> {
    pub(super) d: Half,
    pub(super) scales: [u8; GROUPS],
    /// Of each 8 values in order.
    pub(super) choices: [Choice; 32],
}

impl<const GROUPS: usize> Coded<GROUPS> {
    /// Factor, scale codes and rows of least squared error that the search finds.
    pub(super) fn fit<O: Octet>(x: Samples<'_>, unit: f32) -> Self {
        let octets: Vec<O> = x.parts(OCTET).map(O::new).collect();
        let groups: Vec<&[O]> = octets.chunks(32 / GROUPS).collect();
        let mut wanted = [0.0; GROUPS];
        let parts = x.parts(256 / GROUPS);
        for ((wanted, octets), x) in wanted.iter_mut().zip(&groups).zip(parts) {
            *wanted = group_scale(octets, x.extreme().abs() / O::TOP);
        }
        let most = wanted.iter().copied().fold(0.0, f32::max);
        let mut factor = most / (unit * (0.5 + HIGHEST as f32));
        let mut best = Self {
            d: Half::from_f32(factor),
            scales: [0; GROUPS],
            choices: [Choice::default(); 32],
        };
        let mut least = f32::INFINITY;
        for _ in 0..ROUNDS {
            let d = Half::from_f32(factor);
            let scale_of = |code: i32| unit * d.to_f32() * (0.5 + code as f32);
            let (mut scales, mut choices) = ([0; GROUPS], [Choice::default(); 32]);
            let (mut error, mut cross, mut square) = (0.0, 0.0, 0.0);
            let targets = choices.chunks_mut(32 / GROUPS);
            for (((code, &wanted), octets), targets) in
                scales.iter_mut().zip(&wanted).zip(&groups).zip(targets)
            {
                let guess = (wanted / (unit * d.to_f32()) - 0.5).round() as i32;
                let mut group_error = f32::INFINITY;
                for near in guess - 1..=guess + 1 {
                    let near = near.clamp(0, HIGHEST);
                    let found: f32 = octets.iter().map(|o| o.cost(scale_of(near))).sum();
                    if found < group_error {
                        (group_error, *code) = (found, near as u8);
                    }
                }
                error += group_error;
                let part = 0.5 + f32::from(*code);
                for (octet, target) in octets.iter().zip(targets) {
                    *target = octet.choose(scale_of((*code).into()));
                    cross += unit * part * target.cross;
                    square += (unit * part).powi(2) * target.square;
                }
            }
            if error >= least {
                break;
            }
            (least, best) = (error, Self { d, scales, choices });
            if !(cross > 0.0 && square > 0.0) {
                break;
            }
            factor = cross / square;
        }
        best
    }
}

/// The best scale of a group; `spanning` gives its largest magnitude the highest level.
fn group_scale<O: Octet>(octets: &[O], spanning: f32) -> f32 {
    let cost = |scale: f32| octets.iter().map(|octet| octet.cost(scale)).sum::<f32>();
    let (mut best, mut least) = (spanning, f32::INFINITY);
    let mut consider = |scale: f32| {
        let found = cost(scale);
        if found < least {
            (best, least) = (scale, found);
        }
        best
    };
    let mut found = spanning;
    for candidate in COARSE {
        found = consider(spanning / candidate);
    }
    for candidate in FINE {
        consider(found / candidate);
    }
    let choices = octets.iter().map(|octet| octet.choose(best));
    let (cross, square) = choices.fold((0.0, 0.0), |(c, q), o| (c + o.cross, q + o.square));
    let fitted = cross / square;
    if fitted > 0.0 && cost(fitted) < least { fitted } else { best }
}
