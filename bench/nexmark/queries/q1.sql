-- Currency: prices in another currency, as a decimal.
-- sources: bid
CREATE STREAM q1 AS
  SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid;

-- answer
SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid
