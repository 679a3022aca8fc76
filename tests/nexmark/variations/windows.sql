-- Hopping windows with a HAVING.
-- sources: bid
CREATE TABLE hop_having AS SELECT bidder, window_start, COUNT(*) AS n, MAX(price) AS top
 FROM TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '1' SECOND, INTERVAL '5' SECOND))
 GROUP BY bidder, window_start, window_end HAVING COUNT(*) > 2;

-- answer
SELECT bidder, window_start, count(*) AS n, max(price) AS top FROM hops(bid, 1000, 5000) GROUP BY ALL HAVING count(*) > 2

-- next
-- Tumbling windows, sums and averages.
-- sources: bid
CREATE TABLE minute_by_channel AS SELECT channel, window_start, window_end, SUM(price) AS total, AVG(price) AS mean
 FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '1' MINUTE))
 GROUP BY channel, window_start, window_end;

-- answer
SELECT channel, window_start, window_end, sum(price) AS total, avg(price) AS mean FROM hops(bid, 60000, 60000) GROUP BY ALL

-- next
-- Sessions by another key.
-- sources: bid
CREATE TABLE session_by_auction AS SELECT auction, window_start, COUNT(*) AS n, MAX(price) AS top
  FROM TABLE(SESSION(TABLE bid PARTITION BY auction, DESCRIPTOR(dateTime), INTERVAL '2' SECOND))
  GROUP BY auction, window_start, window_end;

-- answer
SELECT auction, window_start, count(*) AS n, max(price) AS top FROM sessions(bid, auction, 2000) GROUP BY auction, window_start, window_end

-- next
-- Exact distinct counts in WINDOW TUMBLING.
-- sources: bid
CREATE TABLE distinct_per_window AS SELECT auction, WINDOWSTART AS ws, COUNT(DISTINCT bidder) AS n, COUNT(DISTINCT channel) FILTER (WHERE price > 5000) AS c
 FROM bid WINDOW TUMBLING (SIZE 20 SECONDS) GROUP BY auction;

-- answer
SELECT auction, epoch_ms(window_start) AS ws, COUNT(DISTINCT bidder) AS n, COUNT(DISTINCT channel) FILTER (WHERE price > 5000) AS c
 FROM hops(bid, 20000, 20000) GROUP BY ALL

-- next
-- Twelve windows per row, no key but the window.
-- sources: bid
CREATE TABLE long_hops AS SELECT window_start, window_end, COUNT(*) AS n, COUNT(DISTINCT bidder) AS bidders, MAX(price) AS top
 FROM TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '5' SECOND, INTERVAL '1' MINUTE)) WHERE price > 1000 GROUP BY window_start, window_end;

-- answer
SELECT window_start, window_end, COUNT(*) AS n, COUNT(DISTINCT bidder) AS bidders, MAX(price) AS top
 FROM hops(bid, 5000, 60000) WHERE price > 1000 GROUP BY window_start, window_end

-- next
-- An aggregate of sessions.
-- sources: bid
CREATE TABLE sessions_averaged AS SELECT bidder, AVG(n) AS per_window, MAX(n) AS most FROM (
  SELECT bidder, window_start, COUNT(*) AS n FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(dateTime), INTERVAL '3' SECOND))
  GROUP BY bidder, window_start, window_end) q GROUP BY bidder;

-- answer
SELECT bidder, AVG(n) AS per_window, MAX(n) AS most FROM (
  SELECT bidder, window_start, COUNT(*) AS n FROM sessions(bid, bidder, 3000) GROUP BY bidder, window_start, window_end) q GROUP BY bidder

-- next
-- Sessions with short gaps.
-- sources: bid
CREATE TABLE session_by_channel AS SELECT channel, COUNT(*) AS n, AVG(price) AS mean, window_start, window_end
 FROM TABLE(SESSION(TABLE bid PARTITION BY channel, DESCRIPTOR(dateTime), INTERVAL '1' SECOND))
 GROUP BY channel, window_start, window_end;

-- answer
SELECT channel, COUNT(*) AS n, AVG(price) AS mean, window_start, window_end FROM sessions(bid, channel, 1000)
 GROUP BY channel, window_start, window_end

-- next
-- An aggregate of a windowed table, by its key.
-- sources: bid
CREATE TABLE counts_per_window AS SELECT auction, COUNT(*) AS n FROM bid WINDOW TUMBLING (SIZE 10 SECONDS) GROUP BY auction;
CREATE TABLE windows_of_auction AS SELECT auction, MAX(n) AS most, COUNT(*) AS windows FROM counts_per_window GROUP BY auction;

-- answer
SELECT auction, MAX(n) AS most, COUNT(*) AS windows FROM (SELECT auction, window_start, count(*) AS n FROM hops(bid, 10000, 10000) GROUP BY ALL) GROUP BY auction

-- next
-- An aggregate of a windowed table, by its window.
-- sources: bid
CREATE TABLE counts_per_window AS SELECT auction, COUNT(*) AS n FROM bid WINDOW TUMBLING (SIZE 10 SECONDS) GROUP BY auction;
CREATE TABLE auctions_per_window AS SELECT WINDOWSTART AS ws, COUNT(*) AS auctions, SUM(n) AS bids FROM counts_per_window GROUP BY WINDOWSTART;

-- answer
SELECT epoch_ms(window_start) AS ws, COUNT(*) AS auctions, SUM(n) AS bids FROM (SELECT auction, window_start, count(*) AS n FROM hops(bid, 10000, 10000) GROUP BY ALL) GROUP BY ALL

-- next
-- Two windowed counts, joined on both bounds.
-- sources: bid auction
CREATE TABLE windows_joined AS SELECT b.window_start AS window_start, b.bids, a.auctions FROM
 (SELECT window_start, window_end, COUNT(*) AS bids FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '5' SECOND)) GROUP BY window_start, window_end) b JOIN
 (SELECT window_start, window_end, COUNT(*) AS auctions FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(dateTime), INTERVAL '5' SECOND)) GROUP BY window_start, window_end) a
 ON b.window_start = a.window_start AND b.window_end = a.window_end;

-- answer
SELECT b.window_start AS window_start, b.bids, a.auctions FROM
 (SELECT window_start, COUNT(*) AS bids FROM hops(bid, 5000, 5000) GROUP BY ALL) b JOIN
 (SELECT window_start, COUNT(*) AS auctions FROM hops(auction, 5000, 5000) GROUP BY ALL) a ON b.window_start = a.window_start

-- next
-- Windows whose step does not divide their size.
-- sources: bid
CREATE TABLE uneven_hops AS SELECT auction, window_start, COUNT(*) AS n FROM TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '3' SECOND, INTERVAL '10' SECOND)) GROUP BY auction, window_start;

-- answer
SELECT auction, window_start, COUNT(*) AS n FROM hops(bid, 3000, 10000) GROUP BY auction, window_start

-- next
-- Grouped by the end of the window alone.
-- sources: bid
CREATE TABLE window_end_only AS SELECT window_end, MIN(price) AS low, COUNT(DISTINCT channel) AS c FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '7' SECOND)) GROUP BY window_end HAVING MIN(price) < 120;

-- answer
SELECT window_end, MIN(price) AS low, COUNT(DISTINCT channel) AS c FROM hops(bid, 7000, 7000) GROUP BY window_end HAVING MIN(price) < 120

-- next
-- Rows with their windows, not grouped.
-- sources: bid
CREATE STREAM rows_in_windows AS SELECT * FROM TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '5' SECOND, INTERVAL '10' SECOND)) WHERE price > 10000000;

-- answer
SELECT * EXCLUDE (arrived) FROM hops(bid, 5000, 10000) WHERE price > 10000000

-- next
-- HAVING that compares aggregates.
-- sources: bid
CREATE TABLE hop_extremes AS SELECT auction, MAX(price) AS top, MIN(price) AS low, window_start FROM TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '5' SECOND, INTERVAL '15' SECOND)) WHERE channel IN ('Apple','Google') GROUP BY auction, window_start, window_end HAVING COUNT(*) >= 2 AND MAX(price) > 10 * MIN(price);

-- answer
SELECT auction, MAX(price) AS top, MIN(price) AS low, window_start FROM hops(bid, 5000, 15000) WHERE channel IN ('Apple','Google') GROUP BY auction, window_start, window_end HAVING COUNT(*) >= 2 AND MAX(price) > 10 * MIN(price)

-- next
-- TUMBLE over a query of WITH.
-- sources: bid auction
CREATE TABLE window_of_join AS WITH j AS (SELECT a.category, b.price, b.dateTime AS placed FROM bid b JOIN auction a WITHIN UNBOUNDED ON b.auction = a.id)
 SELECT category, window_start, SUM(price) AS total FROM TABLE(TUMBLE(TABLE j, DESCRIPTOR(placed), INTERVAL '10' SECOND)) GROUP BY category, window_start;

-- answer
WITH j AS (SELECT a.category, b.price, b.dateTime AS placed FROM bid b JOIN auction a ON b.auction = a.id)
 SELECT category, time_bucket(INTERVAL 10 SECOND, placed) AS window_start, SUM(price) AS total FROM j GROUP BY ALL
