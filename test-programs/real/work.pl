# A Perl workload: work.pl N. Hashes, strings that grow, regular expressions, closures, sort, a fork with a pipe.
use strict;
use warnings;
my $n = shift;
for my $round (1 .. $n) {
    my (%h, @subs);
    for my $i (1 .. 40000) {
        my $k = "key " . $i * 7919 % 5003;
        push @{ $h{$k} }, "value $i" x ($i % 4 + 1);
        push @subs, sub { $k . length shift } if $i % 50 == 0;
    }
    my $text = join ",", map { "$_=" . join "|", @{ $h{$_} } } sort keys %h;
    my $sum = 0;
    $sum += $1 while $text =~ /value (\d+)/g;
    (my $other = $text) =~ s/(\d+)([|,])/<$1>$2/g;
    my $big = "";
    $big .= "piece $_ of many; " for 1 .. 60000;
    print "$sum ", length $text, " ", length $other, " ", length $big, " ", $subs[7]->($text), "\n";
    my $pid = open my $pipe, "-|";
    die unless defined $pid;
    if (!$pid) { my @l = map { "x" x $_ } 1 .. 2000; print scalar(@l), " in the child\n"; exit 0; }
    print <$pipe>;
    close $pipe;
}
exit 3;
