# Holds hashes, arrays, strings and closures; perl does not free them at its end.
my (%h, @a, @c);
for my $i (1 .. 8000) { $h{"key $i"} = [$i, "v" x ($i % 90)]; push @a, { n => $i }; push @c, sub { $i + shift } if $i % 4 == 0; }
my $s = join ",", keys %h;
print scalar(@a), " ", length $s, "\n";
