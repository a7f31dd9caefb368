// The sequence table: i32 [S, 4] = first row, rows, length, slot (see core/src/ops.rs).
#pragma once

struct Sequence {
    int first, rows, length, slot;
    // True if row 0 has position 0: state starts from zeros.
    INLINE bool fresh() const { return length == rows; }
};

INLINE Sequence load_sequence(const int* table, int index) {
    const int4 line = reinterpret_cast<const int4*>(table)[index];
    return {line.x, line.y, line.z, line.w};
}

// The part of the pass that a block of a ragged grid owns: piece `index` of `count` of a sequence.
struct Piece {
    Sequence sequence;
    int sequence_index, index, count;
};

// Cuts every sequence into pieces of `piece` items, `items_per_row` items a row, and finds piece
// `wanted` of the pass. False if there are fewer. ceil(R * items_per_row / piece) + S pieces
// suffice for any split of R rows over S sequences, and then the last is never needed. Sequences
// of `skipped_rows` rows or fewer have no pieces.
INLINE bool find_piece(const int* table, int sequences, int items_per_row,
                      int piece, int skipped_rows, int wanted, Piece& found) {
    for (int s = 0; s < sequences; ++s) {
        const Sequence sequence = load_sequence(table, s);
        const int items = sequence.rows > skipped_rows ? sequence.rows * items_per_row : 0;
        const int count = (items + piece - 1) / piece;
        if (wanted < count) {
            found = {sequence, s, wanted, count};
            return true;
        }
        wanted -= count;
    }
    return false;
}

// First row after those of all sequences: from here on rows are padding.
INLINE int first_padded_row(const int* table, int sequences) {
    int end = 0;
    for (int s = 0; s < sequences; ++s) {
        const Sequence sequence = load_sequence(table, s);
        if (sequence.rows > 0) end = max(end, sequence.first + sequence.rows);
    }
    return end;
}
