//! Rules of the house that no compiler checks: the order of the rooms, where SQL may stand, the size of a file,
//! no unproved `unwrap`, and that the README names what exists.

mod layers;
mod readme;
mod rules;
mod source;
